"""The container image, without a container engine: its text is checked, its steps are replayed and their result is run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.config import load
from oauthbroker.model.settings import Settings
from tests.kit.cli import free_port
from tests.kit.dockerfile import Replay, Stage, Step, parse, shared_python

REPOSITORY = Path(__file__).parents[1]
TEXT = (REPOSITORY / "Dockerfile").read_text("utf-8")
NOBODY = 10001
WHEEL = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
OF_OTHER_FOLDERS = tuple(WHEEL["force-include"].values())


@pytest.fixture
def stages():
    return parse(TEXT)


def steps(stage: Stage, op: str) -> list[Step]:
    return [step for step in stage.steps if step.op == op]


def test_the_last_stage_is_slim_and_not_root(stages):
    final = stages[-1]
    assert re.fullmatch(r"python:3\.\d+-slim", final.base)
    assert [f"{NOBODY}:{NOBODY}"] == [step.text for step in steps(final, "USER")]
    assert not steps(final, "ADD")


def test_every_package_comes_pinned_and_hashed(stages):
    commands = [part for stage in stages for step in steps(stage, "RUN") for part in step.text.split("&&")]
    installs = [part for part in commands if re.search(r"\bpip\b.* install ", part)]
    assert 3 == len(installs)
    assert all("--no-deps --require-hashes" in part or "--no-deps --no-index" in part for part in installs)
    assert not re.search(r"https?://", re.sub(r"^#.*$", "", TEXT, flags=re.MULTILINE))


def test_the_build_sees_only_the_copied_files(stages):
    """.dockerignore shuts everything out and lets in exactly the sources of COPY."""
    lines = (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
    assert "*" in lines
    assert copied(stages) == {line[1:] for line in lines if line.startswith("!")}


def test_the_build_copies_all_that_the_wheel_takes_from_other_folders(stages):
    assert set(WHEEL["force-include"]) <= copied(stages)


def test_the_port_that_is_told_is_the_default_one(stages):
    """The health check names none: it asks at the port of the configuration."""
    port = str(Settings().listen_port)
    assert [port] == [step.text for step in steps(stages[-1], "EXPOSE")]
    assert not any(port in step.text for step in steps(stages[-1], "HEALTHCHECK"))


def test_the_pages_broker_takes_the_place_of_the_examples(tmp_path, monkeypatch):
    """Mounted at /srv/oauthbroker: the folder `config/` with this one file replaced is a bundle that is taken."""
    section = (
        (REPOSITORY / "docs/how-to/production.md")
        .read_text("utf-8")
        .partition("\n## In a container\n")[2]
        .partition("\n## ")[0]
    )
    [block] = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert block.startswith("# config/broker.yaml\n")
    shutil.copytree(REPOSITORY / "config", tmp_path / "config")
    assert (tmp_path / "config/broker.yaml").exists()
    (tmp_path / "config/broker.yaml").write_text(block, "utf-8")
    settings = load(tmp_path / "config").settings
    kept = (settings.store_root, settings.key_file)
    assert ("/srv/oauthbroker/store", "/srv/oauthbroker/keys/broker.kek") == kept
    assert ("0.0.0.0", Settings().listen_port) == (settings.listen_host, settings.listen_port)


def copied(stages: list[Stage]) -> set[str]:
    """Return the files and folders that a build copies from the repository."""
    return {
        word.rstrip("/")
        for stage in stages
        for step in steps(stage, "COPY")
        if "--from" not in step.text
        for word in step.words[:-1]
    }


@pytest.fixture
def work():
    """A folder that a user without rights can reach: pytest's own is closed to others."""
    path = Path(tempfile.mkdtemp(prefix="oauthbroker-image-"))
    path.chmod(0o755)
    yield path
    subprocess.run(["chmod", "-R", "u+rwX", str(path)], check=True)
    shutil.rmtree(path)


@pytest.mark.sample(0)
@pytest.mark.slow
def test_the_image_builds_without_tools_and_runs_read_only_without_rights(stages, work):
    """Replays every step, looks at what the last layer can do, then starts it the way an engine would."""
    image = Replay(REPOSITORY, work, shared_python() or sys.executable)
    for stage in stages[:-1]:
        image.run(stage)
        image.set_aside(stage.name)
    image.run(stages[-1])
    holds_no_build_tools(image.root)
    installed = package_files(next(image.root.glob("opt/oauthbroker/lib/*/site-packages")))
    assert package_files(REPOSITORY) == {name for name in installed if not name.startswith(OF_OTHER_FOLDERS)}

    running = Container(image)
    before = running.fingerprint()
    assert running.call(image.check.words), "the health check passes although nothing runs"
    assert not running.call([*image.entrypoint, "init", "--config", "config"]), running.log.read_text("utf-8")
    running.start()
    try:
        running.wait_until_healthy(image.check.words)
    finally:
        assert running.stop() == 0, "SIGTERM ends it in order"

    assert before == running.fingerprint(), "only store/, keys/ and /tmp may be written"
    assert [0o700] == [path.stat().st_mode & 0o777 for path in running.mount("store").iterdir() if path.name == "data"]
    assert [0o600] == [path.stat().st_mode & 0o777 for path in running.mount("keys").iterdir() if path.is_file()]


def package_files(place: Path) -> set[str]:
    """Every file of the package, its templates, presets and words included."""
    files = (path.relative_to(place).as_posix() for path in place.glob("oauthbroker/**/*.*"))
    return {name for name in files if not name.endswith(".pyc")}


def holds_no_build_tools(root: Path) -> None:
    assert [] == [path.name for path in root.rglob("bin/pip*")]
    for python in ("usr/local/bin/python", "opt/oauthbroker/bin/python"):
        for tool in ("pip", "hatchling", "setuptools", "wheel"):
            tried = subprocess.run([str(root / python), "-c", f"import {tool}"], check=False, capture_output=True)
            assert tried.returncode, f"{python} can import {tool}"


class Container:
    """A replayed image as a running thing: the tree closed, three mounts, a user without rights where we may choose one."""

    def __init__(self, image: Replay) -> None:
        self.image, self.log = image, image.root.parent / "log"
        self.port = free_port()
        self.mount("config").joinpath("broker.yaml").write_text(
            f"""
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {{name: broker}}
spec:
  publicBaseUrl: http://127.0.0.1:{self.port}
  listen: {{host: 127.0.0.1, port: {self.port}}}
  store: {{root: {self.mount("store")}}}
  keys: {{file: {self.mount("keys") / "broker.kek"}}}
""",
            "utf-8",
        )
        subprocess.run(["chmod", "-R", "a-w", str(image.root)], check=True)
        for path, mode in ((self.mount("store"), 0o700), (self.mount("keys"), 0o700), (image.root / "tmp", 0o1777)):
            path.chmod(mode)
        self.rights: dict[str, Any] = {}
        if not os.getuid() and shared_python():
            self.rights = {"user": NOBODY, "group": NOBODY, "extra_groups": ()}
        self.process: subprocess.Popen[bytes] | None = None

    def mount(self, name: str) -> Path:
        return self.image.root / "srv/oauthbroker" / name

    def call(self, words: list[str]) -> int:
        """Runs one command inside and gives its exit code; its output goes to the log."""
        return self._open(words).wait(60)

    def start(self) -> None:
        self.process = self._open([*self.image.entrypoint, *self.image.command])

    def wait_until_healthy(self, check: list[str]) -> None:
        for _ in range(600):
            if not self.call(check):
                return
            assert self.process
            assert self.process.poll() is None, self.log.read_text("utf-8")
            time.sleep(0.1)
        pytest.fail(f"never healthy:\n{self.log.read_text('utf-8')}")

    def stop(self) -> int:
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def fingerprint(self) -> dict[str, tuple[int, int, int]]:
        """Every path of the tree that is not a mount, with size, mode and time."""
        open_ones = (self.mount("store"), self.mount("keys"), self.image.root / "tmp")
        paths = [
            path for path in self.image.root.rglob("*") if not any(path.is_relative_to(each) for each in open_ones)
        ]
        return {str(path): (path.lstat().st_size, path.lstat().st_mode, path.lstat().st_mtime_ns) for path in paths}

    def _open(self, words: list[str]) -> subprocess.Popen[bytes]:
        program = shutil.which(words[0], path=self.image.env["PATH"])
        assert program, words[0]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [program, *words[1:]], cwd=self.image.inside("."), env=self.image.env,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self.rights,
            )  # fmt: skip
