"""The versions of frameworks that the adapters are written for. pyproject.toml has the same ones in its extras."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Final

Version = tuple[int, ...]

# The adapter: the packages of its extra, each with the first version that fits and the first that does not.
RANGES: Final[dict[str, dict[str, tuple[Version, Version]]]] = {
    "google_adk": {"google-adk": ((2, 13), (3,))},
    "langgraph": {"langgraph": ((1, 2), (2,)), "langchain": ((1, 4), (2,))},
    "openai_agents": {"openai-agents": ((0, 24), (1,))},
    "pydantic_ai": {"pydantic-ai-slim": ((2, 68), (3,))},
}


class UnfitFramework(ImportError):
    """A framework is missing, or its version is out of the range of our adapter."""


def check_versions(adapter: str) -> None:
    """Raise UnfitFramework, with the command that helps, unless the packages of a file are installed and fit."""
    for package, (first, beyond) in RANGES.get(adapter, {}).items():
        found = _installed(package)
        if found is None or not first <= numbers(found) < beyond:
            has = f"{found} is installed" if found else "is not installed"
            wants = f">={'.'.join(map(str, first))},<{'.'.join(map(str, beyond))}"
            command = f'pip install "oauthbroker[{adapter.replace("_", "-")}]"'
            raise UnfitFramework(f"{package} {has}, and this adapter needs {package}{wants}. Run: {command}")


def numbers(version: str) -> Version:
    """Return the numbers of a release: (1, 2, 22) of `1.2.22`."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
