"""Expressions: CEL with the documents' functions, checked against types, and bounded. All numbers are doubles, as in
JSON: `2` means `2.0`. A node's id may have hyphens, without spaces around them. A member that may be absent is null
then. No function builds a list that is longer than its source."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Any, Final

from oauthbroker.flowtools.specification.expression_text import (
    MOST_WORK,
    CelText,
    ExpressionRefused,
    folded,
    looked_up,
    rewritten,
    size,
)
from oauthbroker.flowtools.specification.failures import json_fault, scalar_fault

LONGEST_TEXT: Final = 65_536
MOST_IN_RESULT: Final = 100_000  # values of a list or map
_MOST_PROPERTIES: Final = 500
_OPEN: Final = frozenset({"$ref", "$dynamicRef", "anyOf", "oneOf", "allOf", "patternProperties", "if", "nullable"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_DATES, _NO_TEXTS = "diffDays takes dates of ISO 8601", "concat takes texts and numbers"
_FAILURES: Final = {
    **{each: each for each in (_NO_DATES, _NO_TEXTS, "cannot convert string to double")},
    "a text of more than": f"a text of more than {LONGEST_TEXT} characters",
    "Key not found": "no such key",
    "Index error": "no such index",
    "Applying SELECT": "a member of a value that is no object",
    "Iteration budget": "more iterations than are allowed",
    "can't subtract": "diffDays takes two times with a zone, or two without one",
    "No matching overloads": "a value of a type that the operator or function does not take",
    "invalid regular expression": "a pattern that cannot be read",
}
_NO_JSON = re.compile(r"MAP<(?!STRING|DYN)|BYTES|DURATION|TIMESTAMP|TYPE\b|\bU?INT\b")
_PROBLEM = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'.*")
DYNAMIC, TEXT, NUMBER, TRUTH = "DYN", "STRING", "DOUBLE", "BOOL"  # CEL's names of types
_TYPES: Final = {
    "string": TEXT,
    "number": NUMBER,
    "integer": NUMBER,
    "boolean": TRUTH,
    "null": "NULL",
    "array": "LIST",
    "object": "MAP",
}
_OPTIONAL: Final = {kind: f"google.protobuf.{kind.capitalize()}Value" for kind in (TEXT, NUMBER, TRUTH)}
_WRAPPED: Final = {"string_wrapper": TEXT, "double_wrapper": NUMBER, "bool_wrapper": TRUTH}


class EvaluationFailed(ValueError):
    """An expression has no value for this input, or reached a bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What expressions can read: types by dotted name. `input.amount` is one name. A type is the name of a type of
    CEL, `LIST` or `MAP`; `optional` are those names that may be null."""

    types: Mapping[str, str]
    optional: frozenset[str] = frozenset()

    def __or__(self, other: Names) -> Names:
        return Names(types={**self.types, **other.types}, optional=self.optional | other.optional)

    @property
    def roots(self) -> list[str]:
        return sorted({name.partition(".")[0] for name in self.types})

    def used_in(self, texts: Iterable[str]) -> Names:
        """Return the names whose first word stands in one of the texts. Each declared name costs the library time."""
        words = {word for text in texts for form in (text, folded(text)) for word in re.findall(r"\w+", form)}
        types = {name: kind for name, kind in self.types.items() if folded(name.partition(".")[0]) in words}
        return Names(types=types, optional=frozenset(self.optional & types.keys()))


NO_NAMES: Final = Names(types={})


def names_of_schema(schema: Mapping[str, Any], root: str) -> Names:
    """Return the names below `root` of what a JSON Schema describes. Parts that it leaves open are dynamic."""
    types: dict[str, str] = {}
    optional = set[str]()
    waiting: list[tuple[str, Any, bool]] = [(root, schema, False)]
    while waiting and len(types) < _MOST_PROPERTIES:
        name, part, may_lack = waiting.pop(0)
        part = part if isinstance(part, Mapping) else {}
        kind, properties = part.get("type"), part.get("properties", {})
        whole = kind in ("object", None) and properties and not set(part) & _OPEN
        if whole and all(map(_NAME.fullmatch, properties)):
            required = part.get("required", ())
            waiting += [(f"{name}.{key}", each, may_lack or key not in required) for key, each in properties.items()]
            continue
        known = isinstance(kind, str) and not set(part) & _OPEN and name != root
        types[name] = _TYPES[str(kind)] if known else DYNAMIC
        if may_lack:
            optional.add(name)
    return Names(types=types, optional=frozenset(optional))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A checked expression. `type` is the name of its type."""

    type: str
    _compiled: Any = field(repr=False)
    _names: Names = field(repr=False)
    _text: CelText = field(repr=False)

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return its value for JSON values by root name. Raises EvaluationFailed."""
        values = {folded(name): value for name, value in values.items()}
        data = {name: _as_doubles(looked_up(values, name)) for name in map(folded, self._names.types)}
        grows = self.type in {DYNAMIC, "LIST", "MAP"}  # to no more than what stands in the text
        if grows and sum(size(looked_up(values, path)) for path in self._text.reads) > MOST_IN_RESULT:
            raise EvaluationFailed("its value could be too large")
        if self._text.loops.work(values, data.values()) > MOST_WORK:
            raise EvaluationFailed("its loops could be more work than is allowed")
        try:
            result = self._compiled.eval(data=data)
            found = result.plain_value()
        except RuntimeError as error:
            raise EvaluationFailed(_rendered(str(error))) from None
        if str(result.type()) == "ERROR":
            raise EvaluationFailed(_rendered(str(found)))
        if (fault := json_fault(found)) is not None:
            raise EvaluationFailed("not a finite number" if fault[1] == "number" else "its value is no JSON")
        if isinstance(found, str) and len(found) > LONGEST_TEXT:
            raise EvaluationFailed(f"a text of more than {LONGEST_TEXT} characters")
        return found

    @property
    def reads(self) -> frozenset[str]:
        """Return the paths that it reads, such as `input.order.total`."""
        return frozenset(self._text.reads)

    def compares_with_null(self, name: str) -> bool:
        return any(f"{name} {sign} null" in self._text.text for sign in ("==", "!="))

    def nulls(self, values: Mapping[str, Any]) -> list[str]:
        """Return those that are null, or as much of them as is null."""
        named = {folded(name): value for name, value in values.items()}
        known = [list(accumulate(path.split("."), "{}.{}".format)) for path in self.reads]
        nulls = [[part for part in parts if looked_up(named, part) is None] for parts in known if parts[0] in named]
        return sorted({parts[0] for parts in nulls if parts})


class Scope:
    """Where expressions are written: the names that they can read. `ids` are those with hyphens."""

    def __init__(self, names: Names, ids: Sequence[str] = ()) -> None:
        from cel_expr_python import cel

        self._names, self._ids = names, frozenset(ids)
        strict = {folded(name): _cel_type(cel, kind, name in names.optional) for name, kind in names.types.items()}
        loose = strict | {folded(name): cel.Type.DYN for name in names.optional}
        concat = cel.Overload("concat_list", cel.Type.STRING, [cel.Type.List(cel.Type.DYN)], False, _concat)
        days = cel.Overload("diff_days_texts", cel.Type.DOUBLE, [cel.Type.STRING, cel.Type.STRING], False, _diff_days)
        functions = [cel.FunctionDecl("concat", [concat]), cel.FunctionDecl("diffDays", [days])]
        # The first one checks types, the second one evaluates: Python's None fits no nullable type of the library.
        self._strict = cel.NewEnv(variables=strict, functions=functions)
        self._loose = cel.NewEnv(variables=loose, functions=functions) if names.optional else self._strict

    def compile(self, text: str, wanted: str = "") -> Expression:
        """Check an expression. `wanted` is the type that it must have. Raises ExpressionRefused."""
        cel = rewritten(text, self._ids)
        try:
            whole = str(self._strict.compile(cel.text).return_type())
            compiled = self._loose.compile(cel.text)
        except RuntimeError as error:
            raise _refusal(str(error), cel.places, {folded(each): each for each in self._ids}) from None
        if _NO_JSON.search(whole):
            raise ExpressionRefused("its value is no JSON", "write a text, number, truth, null, list, or map of texts")
        kind = _WRAPPED.get(whole, whole.partition("<")[0])
        if wanted and kind not in {wanted, DYNAMIC}:
            words = {TEXT: "a text", NUMBER: "a number", TRUTH: "true or false"}
            raise ExpressionRefused(f"its value is not {words[wanted]}", f"write one that is {words[wanted]}")
        return Expression(type=kind, _compiled=compiled, _names=self._names, _text=cel)


def _cel_type(cel: Any, kind: str, optional: bool) -> Any:  # noqa: FBT001  (of the type)
    if optional:
        return cel.Type(_OPTIONAL[kind]) if kind in _OPTIONAL else cel.Type.DYN
    if kind == "LIST":
        return cel.Type.List(cel.Type.DYN)
    if kind == "MAP":
        return cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    return getattr(cel.Type, kind)


def _as_doubles(value: Any) -> Any:
    """Return JSON with all numbers as doubles. Raises EvaluationFailed for what the library would read differently."""
    if isinstance(value, Mapping):
        return {_as_doubles(key): _as_doubles(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_doubles(each) for each in value]
    if scalar_fault(value):
        raise EvaluationFailed("it reads a text or number that no flow takes")
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _concat(parts: Sequence[Any]) -> str:
    """Join texts and numbers. A whole number has no point: concat(2, 'x') is `2x`."""
    words = []
    for each in parts:
        if isinstance(each, bool) or not isinstance(each, str | int | float) or scalar_fault(each):
            raise ValueError(_NO_TEXTS)
        words.append(str(int(each)) if isinstance(each, float) and each.is_integer() else str(each))
    if sum(map(len, words)) > LONGEST_TEXT:
        raise ValueError(f"a text of more than {LONGEST_TEXT} characters")
    return "".join(words)


def _diff_days(start: str, end: str) -> float:
    """Return the days between two ISO 8601 times, as a double; negative if the second is earlier."""
    try:
        first, second = datetime.fromisoformat(start), datetime.fromisoformat(end)
    except ValueError:
        raise ValueError(_NO_DATES) from None
    return (second - first).total_seconds() / 86_400


def _refusal(text: str, places: list[tuple[int, int]], ids: Mapping[str, str]) -> ExpressionRefused:
    found = _PROBLEM.search(text)
    if "map key type" in text:
        return ExpressionRefused("a map with a name that is no text", "write each name as a text, such as {'a': 1}")
    if not found:
        return ExpressionRefused("too deep, or too long", "split it over several transform nodes")
    at = max(int(found[2]) - 1, 0)
    column = places[max(bisect_right(places, at, key=lambda pair: pair[0]) - 1, 0)][1] + 1 if places else 1
    if undeclared := _UNDECLARED.match(found[3]):
        head, dot, rest = undeclared[1].partition(".")
        shown = f"{ids.get(head, head)}{dot}{rest}"
        what = f"the name {shown} is not bound here"
        return ExpressionRefused(what, "correct the name", column=column, unknown=shown)
    words = "".join(found[3].splitlines()[:1])[:300].replace("found no matching overload for", "no operator fits")
    words = words.replace("no operator fits 'size'", "no operator fits 'length'")
    return ExpressionRefused(words, "correct the expression", column=column)


def _rendered(text: str) -> str:
    """Return why an expression failed. The library's own words may quote a value."""
    words = text.partition(": ")[2]
    return next((said for sign, said in _FAILURES.items() if words.startswith(sign)), "it cannot be evaluated")
