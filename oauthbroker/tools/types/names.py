"""Names of tools as a model sees them: `{resource}__{export}` (specification 002, section 5)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

SEPARATOR: Final = "__"
SWARM_BUNDLE: Final = "swarmBundle"  # 004 12.4 names this resource with a capital letter: the one exemption
_MOST_SHOWN: Final = 200  # characters of a name that a model made up
_PART: Final = re.compile(r"[a-z0-9_-]{1,64}", re.ASCII)


class ToolName(NamedTuple):
    """A tool's name in its two parts."""

    resource: str
    export: str

    def __str__(self) -> str:
        return f"{self.resource}{SEPARATOR}{self.export}"


def parse_tool_name(name: str) -> ToolName | None:
    """Split a full name at its first `__`. None if it has none (002 section 5.3)."""
    resource, separator, export = name.partition(SEPARATOR)
    return ToolName(resource, export) if separator else None


def shown_name(name: str) -> str:
    """Return a name for a message: short, and without control characters."""
    text = "".join(char if char.isprintable() else "\ufffd" for char in name[:_MOST_SHOWN])
    return text if len(name) <= _MOST_SHOWN else f"{text}…"


def is_resource_name(name: str) -> bool:
    """Return whether a Tool resource may have this name: no `__` inside and no `_` at the end, so that a full name has
    one reading."""
    return name == SWARM_BUNDLE or (_is_part(name) and not name.endswith("_"))


def is_export_name(name: str) -> bool:
    """Return whether an export may have this name: no `__` inside and no `_` at the start."""
    return name in _SWARM_EXPORTS or (_is_part(name) and not name.startswith("_"))


def _is_part(name: str) -> bool:
    return _PART.fullmatch(name) is not None and SEPARATOR not in name


_SWARM_EXPORTS: Final = frozenset({"openChangeset", "commitChangeset", "discardChangeset"})
