"""Turn a document into a resource in its written form. Every wrong shape is reported and then left out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from oauthbroker.config.problems.problems import ConfigInvalidError, Keys, Problems, SourcePlace, dotted
from oauthbroker.config.problems.spelling import is_slip_of_field, nearest
from oauthbroker.config.reading.yaml_reader import AMBIGUOUS, AMBIGUOUS_WORDS, UNREADABLE, YamlDocument
from oauthbroker.config.written.fields import Strict, Tolerant
from oauthbroker.config.written.kinds import OURS, Kinds, Reader, known_names
from oauthbroker.config.written.resource_specs import Header
from oauthbroker.core.errors import Code

S = TypeVar("S", bound=Strict)

# pydantic's type of error -> (what, what to do). Its own sentences may quote the input and are never used.
_WORDS: dict[str, tuple[str, str]] = {
    "string_type": ("not text", "write text, in quotes if it looks like a number or a date"),
    "string_too_long": ("too long", "write at most 2048 characters"),
    "too_long": ("too many items", "write fewer"),
    "string_pattern_mismatch": ("not a usable name", "use letters, digits, '-', '_' and '.', at most 128"),
    "int_type": ("not a whole number", "write digits without quotes"),
    "float_type": ("not a number", "write digits without quotes"),
    "bool_type": ("neither true nor false", "write true or false"),
    "list_type": ("not a list", "write a list: [a, b]"),
    "dict_type": ("not a mapping", "write fields under it"),
    "model_type": ("not a mapping", "write fields under it"),
    "reference": ("not a reference", 'write "Kind/name" or {kind, name}'),
    "bare_secret": (
        "a secret as plain text",
        "write {valueFrom: {secretRef: {ref: Secret/<name>, key: <key>}}} or {valueFrom: {env: NAME}}",
    ),
    "header_name": ("not a header that may be set here", "write letters, digits and -; some are ours alone"),
    "header_value": ("not a header's value", "write one line of plain characters, at most 512"),
    "bound_token": (
        "a type of tokens that are bound to a key, or no access tokens",
        "remove it, and have the provider issue Bearer tokens to this client",
    ),
    "error_word": ("not an error word", "write visible ASCII and single blanks within, at most 80"),
    "member_name": ("not a member's name", "write letters, digits, _ - ., at most 64"),
    "scope": ("not a scope", "write one scope an item, no spaces, quotes or commas"),
    "issuer_template": ("not an issuer", "write https://host/{claim}/path"),
    "anyone_in_list": ("the word `anyone` stands in a list", "write `authorizers: anyone`, or name accounts"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Generic[S]):
    """One resource as written, or the part of one that stands below `base`. `refused` are the paths that were left out,
    so that they are not also reported as missing. `reader` tells for whom it was read."""

    kind: str
    name: str
    spec: S
    document: YamlDocument
    problems: Problems = field(repr=False)
    refused: frozenset[Keys] = frozenset()
    base: Keys = ("spec",)
    reader: Reader | None = None
    kinds: Kinds = field(default=OURS, repr=False)

    @property
    def plugin(self) -> str:
        """The plug-in whose reading this is; empty for the broker's own."""
        return self.reader.plugin if self.reader is not None else ""

    def whole(self, *path: str | int) -> bool:
        """Return whether nothing at, above or below the path (within `spec`) was left out for its shape."""
        full = (*self.base, *path)
        return not any(full[: len(gone)] == gone or gone[: len(full)] == full for gone in self.refused)

    def refuse(
        self,
        path: Sequence[str | int],
        what: str,
        hint: str,
        code: Code = Code.CONFIG_INVALID,
        *,
        key: bool = False,
        astray: bool = False,
    ) -> None:
        """Reports a problem at a path within `spec`: at its value, or at its `key`, perhaps a value gone `astray`."""
        full = (*self.base, *path)
        at = self.document.key_at if key else self.document.value_at
        self.problems.add(at(full), dotted((*full[:-1], "?") if astray else self._shown(full)), what, hint, code)

    def missing(self, path: Sequence[str | int], hint: str) -> None:
        """Reports an absent field, unless it is absent because its shape was refused."""
        if self.whole(*path):
            self.refuse(path, "missing", hint)

    def path(self, *path: str | int) -> str:
        """Return the path as people write it."""
        return dotted(self._shown((*self.base, *path)))

    def _shown(self, path: Keys) -> Keys:
        """Return the path for a report. A plug-in's path may have keys of its users, which may be values gone
        astray."""
        return self.kinds.masked(path) if self.plugin else path

    def place(self, *path: str | int) -> SourcePlace:
        return self.document.value_at((*self.base, *path))


def written(document: YamlDocument, problems: Problems, kinds: Kinds = OURS) -> list[Written[Any]]:
    """Return the resource a document holds, once for each reader of its kind; nothing if another program reads it or it
    cannot be told."""
    if document.foreign:
        return []
    if not isinstance(document.data, dict):
        if document.data is not UNREADABLE:
            problems.add(document.value_at(()), "", "not a resource", "write apiVersion, kind, metadata and spec")
        return []
    shaping = _Shaping(document, problems, kinds)
    header, gone = shaping.validate(Header, document.data, ())
    assert header is not None  # noqa: S101  (no field of ours is required)
    kind, name = header.kind or "", (header.metadata and header.metadata.name) or ""
    readers = kinds.of(kind)
    if not readers:
        _unknown_kind(header.kind, gone, shaping)
        return []
    _require_header(header, gone, document, problems)
    spec = document.data["spec"] if header.spec is not None else {}
    found: list[Written[Any]] = []
    for reader in readers:
        body, lost = shaping.read(reader, spec)
        if body is not None:
            found.append(
                Written(
                    kind=kind,
                    name=name,
                    spec=body,
                    document=document,
                    problems=problems,
                    refused=frozenset(gone | lost),
                    reader=reader,
                    kinds=kinds,
                )
            )
    if all(issubclass(reader.model, Tolerant) for reader in readers):
        _check_slips([reader.model for reader in readers], spec, document, problems)
    return found


def report_broken(reader: Reader, document: YamlDocument, problems: Problems, error: BaseException) -> None:
    """Report that code of a plug-in raised, by the exception's type alone: its text may quote the resource."""
    what = f"the plug-in {reader.plugin} could not read this resource: {type(error).__name__}"
    problems.add(document.value_at(("kind",)), "kind", what, "update the package of the plug-in, or remove its name")


def _check_slips(models: list[type[Strict]], spec: dict[str, Any], document: YamlDocument, problems: Problems) -> None:
    """Refuse a typo of a field that we read among the fields of other programs, which are ignored."""
    known = [name for model in models for name in known_names(model, ("",))]
    exports = spec.get("exports")
    places: list[tuple[Keys, Any, list[str], list[str]]] = [(("spec",), spec, known, known)]
    if "exports" in known and isinstance(exports, list):
        fields = [name for model in models for name in known_names(model, ("exports", 0, ""))]
        places += [(("spec", "exports", at), export, ["auth"], fields) for at, export in enumerate(exports)]
    for base, found, meant_ones, fields in places:
        for key in found if isinstance(found, dict) else ():
            if key in fields:
                continue
            meant = next((it for it in meant_ones if it not in found and is_slip_of_field(key, it)), None)
            if meant is not None:
                path = (*base, key)
                problems.add(document.key_at(path), dotted(path), "unknown field", f"the nearest known name is {meant}")


def _require_header(header: Header, gone: set[Keys], document: YamlDocument, problems: Problems) -> None:
    has_name = header.metadata is not None and header.metadata.name is not None
    for path, there, hint in (
        (("apiVersion",), header.api_version is not None, "write apiVersion: agents.example.io/v1alpha1"),
        (("metadata", "name"), has_name, "write metadata: {name: ...}"),
        (("spec",), header.spec is not None, "write what the resource says"),
    ):
        if not there and not any(path[: len(lost)] == lost for lost in gone):
            problems.add(document.value_at(path), dotted(path), "missing", hint)


def _unknown_kind(kind: str | None, gone: set[Keys], shaping: _Shaping) -> None:
    if ("kind",) in gone:
        return
    known = shaping.kinds.readers
    if kind == "Secret":
        what, hint = "secrets are never written in YAML", "use `oauthbroker secrets set` and remove this document"
    elif kind is None:
        what, hint = "missing", f"write one of {', '.join(known)}"
    else:
        what, hint = "unknown kind", f"the nearest known one is {nearest(kind, known) or ', '.join(known)}"
    shaping.problems.add(shaping.document.value_at(("kind",)), "kind", what, hint)


@dataclass(frozen=True, slots=True)
class _Shaping:
    """One document on its way into models."""

    document: YamlDocument
    problems: Problems
    kinds: Kinds

    def read(self, reader: Reader, spec: dict[str, Any]) -> tuple[Strict | None, set[Keys]]:
        """Return what `validate` returns. A plug-in's model that raises is a problem of its own."""
        try:
            return self.validate(reader.model, spec, ("spec",))
        except ConfigInvalidError:  # too many problems
            raise
        except (Exception, SystemExit) as error:
            if not reader.plugin:
                raise
            broken: BaseException = error
        report_broken(reader, self.document, self.problems, broken)
        return None, set()

    def validate(self, model: type[S], data: dict[str, Any], base: Keys) -> tuple[S | None, set[Keys]]:
        """Return the model of all parts with the right shape, and the paths that were removed. None if a required part
        is missing, or the whole is wrong, which only plug-ins' models can say."""
        rest, gone = copy.deepcopy(data), set[Keys]()
        while errors := _errors(model, rest):
            before = len(gone)
            for kind, loc, context in errors:
                path = self._absent(loc, data, base, gone) if kind == "missing" else None
                path = self._report(model, kind, loc, context, data, base) if path is None else path
                gone.add((*base, *_remove(rest, path)))
            if len(gone) == before:
                return None, gone
        return model.model_validate(rest), gone

    def _absent(self, loc: Keys, data: Any, base: Keys, gone: set[Keys]) -> Keys:
        """Report a required field that is absent. Return the part to leave out."""
        above, _ = _existing(data, loc[:-1])
        full = (*base, *above, loc[-1])
        if full not in gone:
            self.problems.add(self.document.value_at(full), dotted(self.kinds.masked(full)), "missing", "write it")
        return above

    def _report(
        self, model: type[Strict], kind: str, loc: Keys, context: dict[str, Any], data: Any, base: Keys
    ) -> Keys:
        """Report the problem at `loc`. Return the part of it that exists in the data."""
        document, problems, masked = self.document, self.problems, self.kinds.masked
        path, value = _existing(data, loc)
        full = (*base, *path)
        if value is UNREADABLE:
            return path
        if kind == "extra_forbidden":
            known = known_names(model, path)
            close = nearest(str(path[-1]), known)
            hint = f"the nearest known name is {close}" if close else f"known here: {', '.join(sorted(known))}"
            shown = (*masked(full[:-1]), path[-1] if close else "?")  # a word unlike any of ours may be a value astray
            problems.add(document.key_at(full), dotted(shown), "unknown field", hint)
            return path
        if value is AMBIGUOUS:
            what, hint = AMBIGUOUS_WORDS
        elif value is None:
            what, hint = "empty", "write a value or remove the field"
        else:
            what, hint = _words(kind, context)
        place = document.key_at(full) if value is None else document.value_at(full)
        problems.add(place, dotted(masked(full)), what, hint)
        return path


def _errors(model: type[Strict], data: Any) -> list[tuple[str, Keys, dict[str, Any]]]:
    """Return (type, path, bounds) of every error, and nothing that came from the input."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        return [
            (it["type"], it["loc"], {k: v for k, v in it.get("ctx", {}).items() if k in {"expected", "ge", "le"}})
            for it in error.errors(include_input=False, include_url=False)
        ]
    return []


def _words(kind: str, context: dict[str, Any]) -> tuple[str, str]:
    if kind == "literal_error":
        return "unknown value", f"use {context['expected']}"
    if kind == "greater_than_equal":
        return "too small", f"write at least {context['ge']:g}"
    if kind == "less_than_equal":
        return "too large", f"write at most {context['le']:g}"
    return _WORDS.get(kind, ("not valid here", "correct it, or remove it"))


def _existing(data: Any, loc: Keys) -> tuple[Keys, Any]:
    """Return the longest part of `loc` that exists in the data, and its value. References add steps of their own."""
    path: Keys = ()
    for step in loc:
        in_list = isinstance(data, list) and isinstance(step, int) and step < len(data)
        if not in_list and not (isinstance(data, dict) and step in data):
            break
        data = data[step]
        path = (*path, step)
    return path, data


def _remove(data: Any, path: Keys) -> Keys:
    """Takes the nearest mapping entry at or above `path` out of the data; returns what went."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    if not path:  # the whole is wrong
        return path
    for step in path[:-1]:
        data = data[step] if not isinstance(data, dict) or step in data else {}
    data.pop(path[-1], None)
    return path
