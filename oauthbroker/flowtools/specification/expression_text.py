"""The text of an expression, as CEL reads it, and a bound on the work that its loops repeat."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

from oauthbroker.flowtools.specification.source import one_of

FUNCTIONS: Final = (
    "all", "concat", "contains", "diffDays", "double", "endsWith", "exists", "exists_one", "filter", "length",
    "matches", "startsWith", "string",
)  # fmt: skip
_MACROS: Final = frozenset({"all", "exists", "exists_one", "filter"})
_IN_PYTHON: Final = frozenset({"concat", "diffDays"})
_OPENED: Final = {"concat": ("concat", "([", "])"), "length": ("double", "(size(", "))")}  # as CEL has it
MOST_WORK: Final = 20_000_000  # values that loops read; a second or two of CPU time
MOST_ROUNDS: Final = 10_000  # fewer: of the library, for all loops of an evaluation
_CALL: Final = 30  # what a call of a function in Python costs, in values that CEL reads
_LITERALS: Final = 128  # values of the longest text of an expression, 4,096 characters
_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<text>[rRbB]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))"""
    r"""|(?P<number>(?:[0-9]+\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?[A-Za-z_0-9]*)"""
    r"""|(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*)|(?P<sign>&&|\|\||[=!<>]=|.)""",
    re.DOTALL,
)
_Token = tuple[str, str, int]  # its kind, its text, its place


class ExpressionRefused(ValueError):
    """An expression was refused. `column` counts from 1 within its text; `unknown` is a name that nothing binds."""

    def __init__(self, what: str, hint: str, *, column: int = 1, unknown: str = "") -> None:
        super().__init__(what)
        self.what, self.hint, self.column, self.unknown = what, hint, column, unknown


@dataclass(kw_only=True)
class Loops:
    """What the bodies of loops have: how deep they nest, their words, the calls of functions in Python, the paths that
    they read from outside of all loops, and how often they use the variables of loops. `ranges` are the path of the
    list of each loop, empty for another value, whether the loop is inside of another one, and whether it filters."""

    depth: int = 0
    words: int = 0
    calls: int = 0
    paths: list[str] = field(default_factory=list)
    variables: int = 0
    makes_lists: bool = False
    ranges: list[tuple[str, bool, bool]] = field(default_factory=list)

    def work(self, values: Mapping[str, Any], read: Collection[Any]) -> int:
        """Return a bound on the values that the loops read. It follows from the text and the data alone, so that it is
        the same on every machine. `read` are those of the values that the expression reads."""
        if not self.depth:
            return 0
        whole = _LITERALS + sum(map(size, read))
        times = min(MOST_ROUNDS, whole) if self.depth == 1 and not self.makes_lists else MOST_ROUNDS
        once = self.words + _CALL * self.calls + sum(size(looked_up(values, path)) for path in self.paths)
        # The elements of one loop are its list; those of an outer loop are read again in each round of an inner one.
        element = whole if self.makes_lists else max(map(_largest_element, read), default=0)
        elements = whole if self.depth == 1 and not self.makes_lists else times * element
        rounds, copies, longest = 0, 0, max(map(_longest, read), default=0)
        for path, is_inner, filters in self.ranges:
            there = looked_up(values, path)
            length = len(there) if isinstance(there, list | Mapping) else 0 if path else longest
            rounds += length if path and not is_inner else 0
            copies += filters * length * (length if self.depth == 1 else times) // 2  # the library copies in each round
        return MOST_WORK + 1 if rounds >= MOST_ROUNDS else times * once + self.variables * elements + copies


@dataclass(frozen=True, kw_only=True)
class CelText:
    """The text as CEL reads it, ascending pairs (place there, place here), and each path that it reads."""

    text: str
    places: list[tuple[int, int]]
    reads: list[str]
    loops: Loops


def folded(name: str) -> str:
    """Return the form of a name that CEL reads: `_` in place of `-`."""
    return name.replace("-", "_")


def size(value: Any) -> int:
    """Return how many values JSON has, 32 characters of a text counted as one."""
    if isinstance(value, str):
        return 1 + len(value) // 32
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    return 1 + sum(size(each) for _, each in inner)


def _longest(value: Any) -> int:
    """Return the length of the longest list or map in a value."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return max((len(inner), *map(_longest, inner)))


def _largest_element(value: Any) -> int:
    """Return the size of the largest element of a list, or name of a map, in a value."""
    if isinstance(value, list):
        return max(map(size, value), default=0)
    if not isinstance(value, Mapping):
        return 0
    return max((max(size(name), _largest_element(each)) for name, each in value.items()), default=0)


def looked_up(values: Mapping[str, Any], path: str) -> Any:
    """Return the value of a path such as `input.order.total`; None if a part of it is absent."""
    found: Any = values
    for step in path.split("."):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def rewritten(text: str, ids: frozenset[str]) -> CelText:
    """Return the text as CEL reads it. `ids` are names with hyphens. Raises ExpressionRefused."""
    tokens = list(_split(text, ids))
    words = list(_words(tokens))
    there = accumulate((len(word) + 1 for word in words), initial=0)
    places = [(start, token[2]) for start, token in zip(there, tokens, strict=False)]
    reads = [_path(tokens, at) for at in range(len(tokens)) if _is_name(tokens, at)]
    return CelText(text=" ".join(words), places=places, reads=reads, loops=_loops(tokens))


def _words(tokens: list[_Token]) -> Iterator[str]:
    closing: list[str] = []
    for at, (kind, word, start) in enumerate(tokens):
        before, after = _around(tokens, at)
        new = word
        if kind == "number":
            is_index = before == "[" and after == "]" and at > 1 and _ends_value(tokens[at - 2])
            new = _number(word, start, is_index=is_index)
        elif kind == "name":
            new = folded(_OPENED.get(word, (word,))[0] if after == "(" else word)
            if after == "(" and word not in FUNCTIONS:
                what = f"the function {word[:64]} is not known"
                raise ExpressionRefused(what, one_of(word, FUNCTIONS), column=start + 1)
            if after == "(" and word in _MACROS and before != ".":
                what = f"the function {word} without a list"
                raise ExpressionRefused(what, f"write list.{word}(x, ...)", column=start + 1)
        elif word == "(":
            _, new, close = _OPENED.get(before, ("", "(", ")"))
            closing.append(close)
        elif word == ")" and closing:
            new = closing.pop()
        yield new


def _loops(tokens: list[_Token]) -> Loops:
    """Look at the bodies of the loops, without a parser: what stands between the brackets of a macro."""
    loops, brackets = Loops(), list[str]()  # the variable of a loop, or an empty text for another bracket
    for at, (_, word, _) in enumerate(tokens):
        before, after = _around(tokens, at)
        open_ = [each for each in brackets if each]
        if word == "(":
            is_loop = before in _MACROS and at + 1 < len(tokens)
            brackets.append(after if is_loop else "")
            loops.ranges += [(_path_before(tokens, at - 3), bool(open_), before == "filter")] if is_loop else []
            loops.depth = max(loops.depth, len(open_) + is_loop)
        elif word == ")" and brackets:
            brackets.pop()
        elif word == "{" or (word == "[" and not (at and _ends_value(tokens[at - 1]))):
            loops.makes_lists = True
        if not open_:
            continue
        loops.words += 1 + len(word) // 32
        loops.calls += after == "(" and word in _IN_PYTHON
        if _is_name(tokens, at):
            if word in open_:
                loops.variables += 1
            else:
                loops.paths.append(_path(tokens, at))
    return loops


def _is_name(tokens: list[_Token], at: int) -> bool:
    """Tell whether a name stands here that is no member and no function."""
    before, after = _around(tokens, at)
    return tokens[at][0] == "name" and before != "." and after != "("


def _path(tokens: list[_Token], at: int) -> str:
    """Return a name with its members, such as `input.order.total`."""
    steps = [folded(tokens[at][1])]
    while _around(tokens, at)[1] == "." and at + 2 < len(tokens) and _around(tokens, at + 2)[1] != "(":
        at += 2
        steps.append(tokens[at][1])
    return ".".join(steps)


def _path_before(tokens: list[_Token], at: int) -> str:
    """Return the path that ends at a token; empty for another value, such as that of a call."""
    while at >= 2 and tokens[at - 1][1] == ".":
        at -= 2
    return _path(tokens, at) if at >= 0 and _is_name(tokens, at) else ""


def _around(tokens: list[_Token], at: int) -> tuple[str, str]:
    """Return the words before and behind a token."""
    return tokens[at - 1][1] if at else "", tokens[at + 1][1] if at + 1 < len(tokens) else ""


def _split(text: str, ids: frozenset[str]) -> Iterator[tuple[str, str, int]]:
    """Yield (kind, word, start). A word with hyphens is one name if it is an id, else a subtraction."""
    at = 0
    while found := _TOKEN.match(text, at):
        kind, word = str(found.lastgroup), found[0]
        if kind == "name" and "-" in word:
            steps = [each.start() for each in re.finditer("-", word)] + [len(word)]
            word = next((word[:end] for end in reversed(steps) if word[:end] in ids), word[: steps[0]])
        if word in {'"', "'", "`", "\\"}:
            raise ExpressionRefused("a text without its end", "close the quotes", column=at + 1)
        if kind != "space":
            yield kind, word, at
        at += len(word)


def _ends_value(token: tuple[str, str, int]) -> bool:
    return token[0] == "name" or token[1] in {")", "]"}


def _number(word: str, start: int, *, is_index: bool) -> str:
    if is_index and word.isdigit():
        return word
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,17})?([eE][-+]?[0-9]{1,2})?", word):
        raise ExpressionRefused("a number of another form", "write digits, such as 12 or 1.5", column=start + 1)
    return word if re.search("[.eE]", word) else f"{word}.0"
