"""The tool `reminders`. It keeps a line for each reminder in the agent's workdir."""

from __future__ import annotations

from typing import Any


def keep(ctx: Any, args: dict[str, Any]) -> str:
    """Keep a reminder."""
    with (ctx.workdir / "reminders.txt").open("a", encoding="utf-8") as lines:
        lines.write(f"{args['hours']}\t{args['text']}\n")
    return f"I will remind you in {args['hours']} hours."


handlers = {"set": keep}
