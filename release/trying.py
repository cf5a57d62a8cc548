"""Install a built package into an empty environment and try it in an empty folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from release.building import ROOT, digest, ran

PINS = ROOT / "requirements"
MOST_MEGABYTES = 80
PUBLIC = """
import oauthbroker, oauthbroker.capability, oauthbroker.client, oauthbroker.testing
for module in (oauthbroker, oauthbroker.client):
    for name in module.__all__:
        getattr(module, name)
print(oauthbroker.__file__)
"""


def installed(package: Path, place: Path) -> Path:
    """Make an environment with the pinned packages and this one, every file by its hash; return its `bin`."""
    ran(sys.executable, "-m", "venv", "--without-pip", place)
    builds: list[str | Path] = ["-r", PINS / "build.txt"] if package.suffix == ".gz" else []
    ran(PINS / "install", place, "--require-hashes", "-r", PINS / "runtime.txt", *builds)
    pin = place / "package.txt"
    pin.write_text(f"oauthbroker @ {package.resolve().as_uri()} --hash=sha256:{digest(package)}\n", "utf-8")
    ran(PINS / "install", place, "--require-hashes", "--no-index", "--no-build-isolation", "-r", pin)
    return place / "bin"


def megabytes(place: Path) -> int:
    """Return how much disk an environment takes without bytecode, which depends on the installer and the use."""
    files = (path for path in place.rglob("*") if path.is_file() and not path.is_symlink() and path.suffix != ".pyc")
    return round(sum(path.stat().st_blocks * 512 for path in files) / 1e6)


def try_out(programs: Path, folder: Path, version: str) -> None:
    """Run the smoke test in this folder. Raises RuntimeError or AssertionError."""
    env = environment(programs, folder)
    command, python = programs / "oauthbroker", programs / "python"
    said = ran(command, "--version", cwd=folder, env=env)
    _demand(said == f"oauthbroker {version}\n", f"--version says {said!r}")
    place = ran(python, "-c", PUBLIC, cwd=folder, env=env).strip()
    _demand(Path(place).is_relative_to(programs.parent), f"the package was imported from {place}")
    played = json.loads(ran(command, "demo", "--auto", "--json", cwd=folder, env=env))
    _demand(played["status"] == "ready", "the demo did not end with a token")
    checked = json.loads(ran(command, "check", "store/demo/config", "--json", cwd=folder, env=env))
    _demand(checked["ok"] is True, "the demo's configuration is refused")
    presets = json.loads(ran(command, "providers", "list", "--json", cwd=folder, env=env))
    _demand(bool(presets), "there are no presets")
    size = megabytes(programs.parent)
    _demand(size <= MOST_MEGABYTES, f"an environment takes {size} MB, and {MOST_MEGABYTES} are the most (README.md)")
    ran(command, "flow", "new", "shop", cwd=folder, env=env)
    example = ROOT / "examples" / "flowtools"
    _demand(_contents(folder / "shop") == _contents(example), "flow new does not write examples/flowtools")


def environment(programs: Path, folder: Path) -> dict[str, str]:
    """Return the variables of a new user, with these programs first on the path."""
    kept = {name: os.environ[name] for name in ("LANG", "LC_ALL") if name in os.environ}
    return {**kept, "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "NO_COLOR": "1"}


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _demand(holds: bool, text: str) -> None:  # noqa: FBT001
    if not holds:
        raise RuntimeError(text)
