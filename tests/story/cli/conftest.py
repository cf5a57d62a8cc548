"""A folder where commands are typed, and a provider that goes by the real clock, as the commands do."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from oauthbroker.cli import run_with_token
from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit.cli import Desk
from tests.story.cli.login_kit import Person
from tests.story.cli.run_kit import Became


@pytest.fixture
def idp(canaries: Canaries) -> Iterator[IdentityProvider]:
    with IdentityProvider(canaries=canaries) as provider:
        yield provider


@pytest.fixture
def desk(tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Desk:
    return Desk(tmp_path, canaries, monkeypatch, capsys)


@pytest.fixture
def used(desk: Desk, idp: IdentityProvider) -> Desk:
    """Alice has agreed, and got a token; no broker runs."""
    desk.ready_to_serve(idp)
    desk.connect("alice", idp)
    return desk


@pytest.fixture
def person(tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Iterator[Person]:
    for name in ("OAUTHBROKER_URL", "OAUTHBROKER_TURN_TOKEN", "OAUTHBROKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with tempfile.TemporaryDirectory(prefix="p") as short:  # the path of a socket has a limit
        home = Path(short, "h")
        Path(short).chmod(0o711)  # what keeps other users out are the product's own folders
        home.symlink_to(tmp_path)
        yield Person(home, canaries, monkeypatch, capsys)


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[Became]:
    """The commands that `run` becomes, noted in place of this process."""
    found: list[Became] = []

    def become(words: list[str], env: dict[str, str]) -> None:
        found.append(Became(words, env))
        raise typer.Exit

    monkeypatch.setattr(run_with_token, "_become", become)
    return found
