"""`make image`: build the container image and try it, or say in one sentence that no engine runs."""

from __future__ import annotations

import shutil
import subprocess
import sys

from oauthbroker.core.version import VERSION
from release.building import ran

NAME = f"oauthbroker:{VERSION}"
ENGINES = ("docker", "podman")
ANSWER_SECONDS = 20.0
BUILD_SECONDS = 1800.0
CLOSED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")  # noqa: S108
INSTEAD = "`make replay` replays the Dockerfile's steps without an engine."


def main() -> int:
    """Build and try the image. Return the exit status."""
    try:
        engine = running_engine()
        made(engine)
    except (RuntimeError, subprocess.TimeoutExpired) as refused:
        print(f"make image: {refused}", file=sys.stderr)
        return 1
    print(f"ok: {NAME} built with {engine}, and it starts without rights on a read-only root")
    return 0


def made(engine: str) -> None:
    """Build the image and start it once. Raises RuntimeError."""
    ran(engine, "build", "--tag", NAME, ".", seconds=BUILD_SECONDS)
    said = ran(engine, "run", "--rm", *CLOSED, NAME, "--version")
    if said != f"oauthbroker {VERSION}\n":
        raise RuntimeError(f"--version says {said!r}")


def running_engine() -> str:
    """Return the first engine that is installed and answers. Raises RuntimeError with what to do."""
    installed = [engine for engine in ENGINES if shutil.which(engine)]
    if not installed:
        raise RuntimeError(f"no container engine is installed. Install {' or '.join(ENGINES)}. {INSTEAD}")
    for engine in installed:
        if _answers(engine):
            return engine
    raise RuntimeError(f"{' and '.join(installed)} cannot be reached. Start the container engine. {INSTEAD}")


def _answers(engine: str) -> bool:
    try:
        ran(engine, "info", "--format", "{{.}}", seconds=ANSWER_SECONDS)
    except (RuntimeError, subprocess.TimeoutExpired):
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
