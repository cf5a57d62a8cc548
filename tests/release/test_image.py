"""`make image`: engines of the test, as programs on the path, and the sentence where none runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.core.version import VERSION
from release import image

BUILT = f"build --tag oauthbroker:{VERSION} ."
STARTED = (
    f"run --rm --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges oauthbroker:{VERSION} --version"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder: Path, engine: str, *, fails: str = "", version: str = VERSION) -> Path:
    """Install an engine that notes its calls in a file, which is returned, and fails at one verb."""
    calls, program = folder / f"{engine}.calls", folder / engine
    program.write_text(
        f'#!/bin/sh\n[ "$1" = info ] || echo "$*" >>\'{calls}\'\n'
        f"if [ \"$1\" = '{fails}' ]; then echo 'it went wrong' >&2; exit 3; fi\n"
        f"if [ \"$1\" = run ]; then echo 'oauthbroker {version}'; fi\n",
        "utf-8",
    )
    program.chmod(0o755)
    return calls


def test_the_image_is_built_and_started_without_rights(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = install(folder, "docker")
    assert 0 == image.main()
    assert [BUILT, STARTED] == calls.read_text("utf-8").splitlines()
    assert f"ok: oauthbroker:{VERSION} built with docker" in capsys.readouterr().out


def test_an_engine_that_answers_takes_the_place_of_one_that_does_not(folder: Path) -> None:
    silent, answers = install(folder, "docker", fails="info"), install(folder, "podman")
    assert 0 == image.main()
    assert not silent.exists()
    assert [BUILT, STARTED] == answers.read_text("utf-8").splitlines()


@pytest.mark.parametrize(
    ("engines", "says"),
    [
        ({}, "no container engine is installed. Install docker or podman."),
        ({"docker": {"fails": "info"}}, "docker cannot be reached. Start the container engine."),
        ({name: {"fails": "info"} for name in image.ENGINES}, "docker and podman cannot be reached."),
        ({"docker": {"fails": "build"}}, "docker build --tag"),
        ({"podman": {"fails": "run"}}, "it went wrong"),
        ({"podman": {"version": "0.0.1"}}, "--version says 'oauthbroker 0.0.1"),
    ],
)
def test_without_an_image_there_is_one_message_and_a_status(
    folder: Path, capsys: pytest.CaptureFixture[str], engines: dict[str, dict[str, str]], says: str
) -> None:
    for name, more in engines.items():
        install(folder, name, **more)
    assert 1 == image.main()
    said = capsys.readouterr()
    assert ("", True, True) == (said.out, said.err.startswith("make image: "), says in said.err)
