"""Count the calls of a piece of work, with the table of counts that a warm path may have (call_counts.json).

Calls are counted and not seconds, so that a busy machine changes nothing. `python -m tests.kit.call_counts NAME=COUNT`
records a count anew.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from types import FrameType
from typing import Any

TABLE = Path(__file__).with_name("call_counts.json")
MARGIN = 1.25  # times the recorded count
BELOW = 0.6  # a count that fell further has to be recorded, so that it cannot come back


def counts_of(work: Coroutine[Any, Any, object]) -> Counter[str]:
    """Run work that waits for nothing, and count the calls of each function, those in C included."""
    calls = Counter[str]()

    def on_call(frame: FrameType, event: str, function: Any) -> None:
        if event == "call":
            calls[f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_qualname}"] += 1
        elif event == "c_call":
            calls[function.__qualname__] += 1

    is_over = False
    before = sys.getprofile()
    sys.setprofile(on_call)
    try:
        work.send(None)
    except StopIteration:
        is_over = True
    finally:
        sys.setprofile(before)
    work.close()
    assert is_over, "the work waits: its calls cannot be counted in one step"
    calls -= Counter({"setprofile": 1})
    return calls


def complaint(name: str, calls: Counter[str]) -> str:
    """Return the fault of the number of calls, with a list of them; empty if it is in bounds."""
    known, now = int(json.loads(TABLE.read_text("utf-8"))[name]), calls.total()
    if known * BELOW <= now <= known * MARGIN:
        return ""
    listed = "\n".join(f"{count:>5} {function}" for function, count in calls.most_common())
    record = f"python -m tests.kit.call_counts {name}={now}"
    return f"{name}: {now} calls instead of about {known}. If that is meant: `{record}`\n{listed}"


def main(words: list[str]) -> None:
    table: dict[str, int] = json.loads(TABLE.read_text("utf-8"))
    for word in words:
        name, _, count = word.partition("=")
        table[name] = int(count)
    TABLE.write_text(json.dumps(dict(sorted(table.items())), indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
