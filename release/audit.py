"""`make audit`: look the pinned packages up among known vulnerabilities, or say loudly that this was not possible."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release.building import ROOT, TOOLS

PINS = ("runtime.txt", "build.txt", "postgres.txt", "dev.txt", "release.txt")
SOURCES = ("pypi", "osv")  # pip-audit's names of where the vulnerabilities are listed
PATIENCE = 300


@dataclass(frozen=True, slots=True)
class Report:
    """The vulnerabilities, one line each. `read` says whether a source could be read at all."""

    read: bool
    found: tuple[str, ...] = ()


def main() -> int:
    """Print the report. Return 1 for a vulnerability, 0 where there is none and where no source could be read."""
    report = audited(*(ROOT / "requirements" / name for name in PINS))
    for line in said(report):
        print(line, file=sys.stderr)
    return 1 if report.found else 0


def said(report: Report) -> list[str]:
    if not report.read:
        return ["SKIPPED: no source of known vulnerabilities can be reached from here. Run `make audit` where one can."]
    return list(report.found) or ["ok: no known vulnerability in the pinned packages"]


def audited(*pins: Path) -> Report:
    """Ask the sources in turn, until one answers for all pins."""
    for source in SOURCES:
        answers = [asked(source, file) for file in pins]
        read = [answer for answer in answers if answer is not None]
        if len(read) == len(pins):
            return Report(read=True, found=tuple(sorted({line for answer in read for line in vulnerabilities(answer)})))
    return Report(read=False)


def asked(source: str, pins: Path) -> dict[str, Any] | None:
    """Return pip-audit's JSON; None if it could not ask, or if the source does not know a package at all."""
    program = TOOLS / "pip-audit"
    words = ["-r", pins, "-s", source, "--require-hashes", "--disable-pip", "-f", "json", "--progress-spinner", "off"]
    try:
        done = subprocess.run(  # noqa: S603  (words of ours)
            [str(word) for word in (program, *words, "--timeout", "20")], check=False, capture_output=True, text=True,
            timeout=PATIENCE, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        answer = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return answer if is_whole(answer) else None


def is_whole(answer: Any) -> bool:
    """Tell whether every package was looked up. A mirror without this data skips all, and pip-audit calls that fine."""
    packages: list[dict[str, Any]] = answer.get("dependencies", []) if isinstance(answer, dict) else []
    return bool(packages) and all("vulns" in each for each in packages)


def vulnerabilities(answer: dict[str, Any]) -> list[str]:
    """Return one line for each vulnerability: the package, its version, the id, and the versions without it."""
    lines = []
    for package in answer["dependencies"]:
        for each in package.get("vulns", []):
            fixed = ", ".join(each.get("fix_versions", [])) or "no version yet"
            lines.append(f"{package['name']} {package['version']}: {each['id']}, fixed in {fixed}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
