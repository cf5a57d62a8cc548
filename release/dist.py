"""`make dist`: build the packages twice, install each, try it, and write what is in it to dist/."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from oauthbroker.core.version import VERSION
from release import typescript
from release.building import ROOT, TOOLS, Built, build, commit_time, copied, differing, digest, ran, tracked, unpacked
from release.trying import installed, try_out

DIST = ROOT / "dist"


def main() -> int:
    """Run all steps. Return the exit status; each step prints one line."""
    try:
        with tempfile.TemporaryDirectory(prefix="oauthbroker-dist-") as work:
            make(Path(work))
    except RuntimeError as refused:
        print(f"make dist: {refused}", file=sys.stderr)
        return 1
    return 0


def make(work: Path) -> None:
    """Build, compare, try, and fill dist/. Raises RuntimeError."""
    built = built_twice(work)
    _step("built twice, the same bytes, and the same wheel from the sdist")
    for package in (built.wheel, built.sdist):
        kind = "wheel" if package.suffix == ".whl" else "sdist"
        programs = installed(package, work / f"env-{kind}")
        (work / f"folder-{kind}").mkdir()
        try_out(programs, work / f"folder-{kind}", VERSION)
        _step(f"{kind}: installed with pinned hashes, demo and smoke test passed")
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    for package in (built.wheel, built.sdist):
        shutil.copy(package, DIST)
    write_sbom(work / "env-wheel", DIST / f"oauthbroker-{VERSION}.cdx.json")
    _step("list of packages (CycloneDX) written")
    if shutil.which("npm"):
        shutil.copy(typescript.checked(work), DIST)
        _step("TypeScript: packed twice, the same bytes; installed, imported, compiled against")
    else:
        print("SKIPPED: the TypeScript package, because this machine has no npm.", file=sys.stderr)
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in sorted(DIST.iterdir()))
    (DIST / "SHA256SUMS").write_text(sums, "utf-8")
    print(sums, end="")


def built_twice(work: Path) -> Built:
    """Build in two folders, and the wheel once more from the sdist. Raises RuntimeError for a byte of difference."""
    names, epoch = tracked(), commit_time()
    first, second = (
        build(copied(names, work / name / "source"), work / name / "dist", epoch) for name in ("one", "another")
    )
    again = build(unpacked(first.sdist, work / "unpacked"), work / "again", epoch, "-t", "wheel")
    found = differing(first.digests, second.digests)
    if digest(again.wheel) != digest(first.wheel):
        found.append("the wheel of the sdist")
    if found:
        raise RuntimeError(f"not reproducible: {', '.join(found)}")
    return first


def write_sbom(environment: Path, to: Path) -> None:
    """Write the packages of an environment in CycloneDX, without times and random numbers."""
    program = TOOLS / "cyclonedx-py"
    python = environment / "bin" / "python"
    ran(program, "environment", "--output-reproducible", "--of", "JSON", "-o", to, python)


def _step(text: str) -> None:
    print(f"ok: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
