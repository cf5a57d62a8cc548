"""The figures of one storm, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table


@dataclass(frozen=True)
class Report:
    """The figures of one storm, in the order in which they are printed."""

    title: str
    figures: Mapping[str, Any]
    problems: list[str]

    def table(self) -> Table:
        table = Table("figure", "value", title=self.title, title_justify="left")
        for name, value in self.figures.items():
            table.add_row(name, _shown(value))
        table.add_row("problems", _shown(self.problems) or "none")
        return table


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "\n".join(f"{name}: {number}" for name, number in value.items())
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)
