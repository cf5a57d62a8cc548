"""The container image, without a container engine: its text is judged, its steps are replayed and what they made is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from oauthbroker.apps import Settings
from tests.dockerfile import Replay, Stage, Step, parse, shared_python

REPOSITORY = Path(__file__).parents[1]
TEXT = (REPOSITORY / "Dockerfile").read_text("utf-8")
NOBODY = 10001


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
    assert all("--require-hashes" in part or "--no-deps --no-index" in part for part in installs)
    assert not re.search(r"https?://", re.sub(r"^#.*$", "", TEXT, flags=re.MULTILINE))


def test_the_build_sees_only_what_it_copies(stages):
    """.dockerignore shuts everything out and lets in exactly the sources of COPY."""
    lines = (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
    copied = {
        word.rstrip("/")
        for stage in stages
        for step in steps(stage, "COPY")
        if "--from" not in step.text
        for word in step.words[:-1]
    }
    assert "*" in lines
    assert copied == {line[1:] for line in lines if line.startswith("!")}


def test_the_port_is_the_default_one(stages):
    port = str(Settings().listen_port)
    assert [port] == [step.text for step in steps(stages[-1], "EXPOSE")]
    assert all(port in step.text for step in steps(stages[-1], "HEALTHCHECK"))


@pytest.fixture
def work():
    """A folder that somebody without rights can reach: pytest's own is closed to others."""
    path = Path(tempfile.mkdtemp(prefix="oauthbroker-image-"))
    path.chmod(0o755)
    yield path
    subprocess.run(["chmod", "-R", "u+rwX", str(path)], check=True)
    shutil.rmtree(path)


@pytest.mark.slow
def test_the_image_builds_and_holds_no_build_tools(stages, work):
    """Replays every step; then looks at what the last layer can do."""
    image = Replay(REPOSITORY, work, shared_python() or sys.executable)
    for stage in stages[:-1]:
        image.run(stage)
        image.set_aside(stage.name)
    image.run(stages[-1])

    assert "build" in image.done
    assert [] == [path.name for path in image.root.rglob("bin/pip*")]
    for python in ("usr/local/bin/python", "opt/oauthbroker/bin/python"):
        for tool in ("pip", "hatchling", "setuptools", "wheel"):
            tried = subprocess.run([str(image.root / python), "-c", f"import {tool}"], check=False, capture_output=True)
            assert tried.returncode, f"{python} can import {tool}"
    assert os.access(image.root / "opt/oauthbroker/bin/oauthbroker", os.X_OK)
    mounts = {name: image.root / "srv/oauthbroker" / name for name in ("config", "store", "keys")}
    assert {"config": "755", "store": "700", "keys": "700"} == {
        name: f"{path.stat().st_mode & 0o777:o}" for name, path in mounts.items()
    }
