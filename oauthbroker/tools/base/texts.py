"""Texts of base tools: the arguments that they need, and answers within what an output of a call may have."""

from __future__ import annotations

import json
from bisect import bisect_right
from codecs import getincrementaldecoder
from collections.abc import Mapping

from oauthbroker.tools.calling.context import Json
from oauthbroker.tools.types.failures import ToolCode, ToolFailure
from oauthbroker.tools.types.output_limits import VALUE


def decoded(data: bytes, *, is_cut: bool) -> str:
    """Return bytes as a text, with U+FFFD for invalid UTF-8. A last character that was cut is left out."""
    return getincrementaldecoder("utf-8")("replace").decode(data, final=not is_cut)


def cut_to_output(answer: dict[str, Json], member: str, mark: str = "") -> bool:
    """Cut a text of an answer, `mark` at its end, so that the whole answer is an output that a call may have: control
    characters count six bytes in JSON. Return whether it was cut."""

    def size(text: str) -> int:
        return len(json.dumps(answer | {member: text}, ensure_ascii=False).encode())

    text = answer[member]
    if size(text) <= VALUE.size:
        return False
    lengths = range(min(len(text), VALUE.size))
    fits = bisect_right(lengths, VALUE.size, key=lambda length: size(text[:length] + mark)) - 1
    answer[member] = text[: max(fits, 0)] + mark
    return True


def needed(given: Mapping[str, object], name: str) -> str:
    """Return an argument that is a text. A Tool without `parameters` has nothing else that checks it."""
    if isinstance(value := given.get(name), str):
        return value
    problem = "is not a text" if name in given else "is missing"
    raise ToolFailure(f"The argument {name!r} {problem}.", name="ToolArgumentsError", code=ToolCode.ARGUMENTS)
