"""The versions of the SDK `mcp` that the plug-in is written for. pyproject.toml has the same ones in its extra."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Final

FIRST: Final = (2, 3)
BEYOND: Final = (3,)
RANGE: Final = "mcp>=2.3,<3"


class UnfitSdk(ImportError):
    """The SDK is missing, or its version is out of our range."""


def check_sdk() -> None:
    """Raise UnfitSdk, with the command that helps, unless the SDK is installed and fits."""
    found = _installed()
    numbers = re.match(r"\d+(\.\d+)*", found)
    if numbers is None or not FIRST <= tuple(map(int, numbers[0].split("."))) < BEYOND:
        has = f"mcp {found} is installed" if found else "mcp is not installed"
        raise UnfitSdk(f'{has}, and oauthbroker needs {RANGE}. Run: pip install "oauthbroker[mcp]"')


def _installed() -> str:
    try:
        return metadata.version("mcp")
    except metadata.PackageNotFoundError:
        return ""
