"""What this machine has for tests/e2e (Node, its packages and a Chromium) and for others. Finds, never installs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

NODE_HOME = Path(__file__).parents[1] / "e2e" / "node"
TYPESCRIPT_HOME = Path(__file__).parents[2] / "clients" / "typescript"

SKIPPED = "skipped, this machine lacks: "

_PLUGIN = 2 << 30  # bytes; a whole run needs less


def node() -> str | None:
    """The Node that the locked packages bring along, else the machine's."""
    brought = NODE_HOME / "node_modules" / ".bin" / "node"
    return str(brought) if brought.exists() else shutil.which("node")


def chromium() -> str | None:
    """Return the distribution's Chromium (or $CHROMIUM); no browser is ever downloaded. The headless shell comes first: the
    whole browser also draws its own windows, and takes three times the CPU."""
    named = os.environ.get("CHROMIUM")
    whole = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
    candidates = [named] if named else ["chromium-headless-shell", *whole]
    return next((path for name in candidates if (path := shutil.which(name))), None)


def nginx() -> str | None:
    """The distribution's nginx, which lies where only root's PATH leads."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


def memory() -> Path | None:
    """A disk in memory with space for a run's folders, where programs may be run too; None without one."""
    place = Path("/dev/shm")
    if not sys.platform.startswith("linux") or not os.access(place, os.W_OK):
        return None
    found = os.statvfs(place)
    return None if found.f_flag & os.ST_NOEXEC or found.f_bavail * found.f_frsize < _PLUGIN else place


def missing() -> list[str]:
    """What tests/e2e needs and this machine lacks, in words for a person; empty when all is there."""
    lacks = {
        "Node (package nodejs)": node() is None,
        "the Node packages (make node)": not (NODE_HOME / "node_modules" / ".package-lock.json").exists(),
        "the TypeScript compiler (make node)": not (TYPESCRIPT_HOME / "node_modules" / ".package-lock.json").exists(),
        "curl and jq (packages of these names)": None in {shutil.which("curl"), shutil.which("jq")},
        "Chromium (package chromium-headless-shell or chromium, or its path in CHROMIUM)": chromium() is None,
    }
    return [what for what, absent in lacks.items() if absent]


def required() -> bool:
    """E2E=required turns a skip into a failure; CI sets it."""
    return os.environ.get("E2E") == "required"


def demand(lacks: list[str]) -> None:
    """Skips a test that needs what this machine lacks, or fails it where E2E=required. The run's last word says so."""
    if lacks and required():
        pytest.fail(f"E2E=required, and this machine lacks: {', '.join(lacks)}", pytrace=False)
    if lacks:
        pytest.skip(SKIPPED + ", ".join(lacks))
