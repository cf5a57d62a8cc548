"""Turn a document into a resource in its written form."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from oauthbroker.config.problems.problems import Keys, Problems, SourcePlace, dotted
from oauthbroker.config.reading.shaping import Shaping
from oauthbroker.config.reading.yaml_reader import YamlDocument
from oauthbroker.config.reading.yaml_scalars import UNREADABLE
from oauthbroker.config.written.fields import Strict, Tolerant
from oauthbroker.config.written.kinds import OURS, Kinds, Reader, known_names
from oauthbroker.config.written.resource_specs import Header
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import Code
from oauthbroker.core.spelling import is_slip_of_field, nearest

S = TypeVar("S", bound=Strict)


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
        """Return whether nothing at, above or below the path (within `spec`) was left out for its shape, and the field
        itself was not misspelt."""
        full = (*self.base, *path)
        return full not in self.document.respelt and not any(
            full[: len(gone)] == gone or gone[: len(full)] == full for gone in self.refused
        )

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
        """Report a problem at a path within `spec`: at its value, or at its `key`, perhaps a value gone `astray`."""
        full = (*self.base, *path)
        at = self.document.key_at if key else self.document.value_at
        self.problems.add(at(full), dotted((*full[:-1], "?") if astray else self._shown(full)), what, hint, code)

    def refuse_name(self, what: str, hint: str) -> None:
        """Report a problem of the name in `metadata`."""
        self.problems.add(self.document.value_at(("metadata", "name")), "metadata.name", what, hint)

    def missing(self, path: Sequence[str | int], hint: str) -> None:
        """Report an absent field, unless it is absent because its shape was refused."""
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
    shaping = Shaping(document, problems, kinds)
    data = copy.deepcopy(document.data)
    _respell_slips(shaping, ("metadata",), data, ["name"], ["name"])
    header, gone = shaping.validate(Header, data, ())
    assert header is not None  # noqa: S101  (no field of ours is required)
    kind, name = _known_kind(header.kind, gone, shaping), (header.metadata and header.metadata.name) or ""
    readers = kinds.of(kind)
    if readers:
        _require_header(header, gone, document, problems)
    if not readers or not name or header.spec is None:
        problems.unread = True
    if not readers or header.spec is None:
        return []
    spec = header.spec
    if all(issubclass(reader.model, Tolerant) for reader in readers):
        _respell_slips_of_parts(shaping, [reader.model for reader in readers], spec)
    found: list[Written[Any]] = []
    for reader in readers:
        body, lost = shaping.read(reader, spec)
        problems.unread = problems.unread or body is None
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
    return found


def _respell_slips_of_parts(shaping: Shaping, models: list[type[Strict]], spec: dict[str, Any]) -> None:
    """Respell typos of fields that we read among the fields of other programs, which are ignored."""
    data = {"spec": spec}
    known = [name for model in models for name in known_names(model, ("",))]
    _respell_slips(shaping, ("spec",), data, known, known)
    exports = spec.get("exports")
    if "exports" in known and isinstance(exports, list):
        fields = [name for model in models for name in known_names(model, ("exports", 0, ""))]
        for at in range(len(exports)):
            _respell_slips(shaping, ("spec", "exports", at), data, ["auth"], fields)


def _respell_slips(shaping: Shaping, base: Keys, data: Any, meant_ones: list[str], known: list[str]) -> None:
    """Report typos of `meant_ones` in the mapping at `base`, and read them as the right words."""
    found = data
    for step in base:
        found = found.get(step) if isinstance(found, dict) else found[step]
    for key in list(found) if isinstance(found, dict) else ():
        meant = next((it for it in meant_ones if it not in found and is_slip_of_field(key, it)), None)
        if key not in known and meant is not None:
            path, document = (*base, key), shaping.document
            hint = f"the nearest known name is {meant}"
            shaping.problems.add(document.key_at(path), dotted(path), "unknown field", hint)
            shaping.respell(meant, path, path, data)


def _require_header(header: Header, gone: set[Keys], document: YamlDocument, problems: Problems) -> None:
    has_name = header.metadata is not None and header.metadata.name is not None
    for path, there, hint in (
        (("apiVersion",), header.api_version is not None, "write apiVersion: agents.example.io/v1alpha1"),
        (("metadata", "name"), has_name, "write metadata: {name: ...}"),
        (("spec",), header.spec is not None, "write what the resource says"),
    ):
        if not there and not any(path[: len(lost)] == lost for lost in gone):
            problems.add(document.value_at(path), dotted(path), "missing", hint)


def _known_kind(kind: str | None, gone: set[Keys], shaping: Shaping) -> str:
    """Return the kind, or the one that was meant; empty if it cannot be told."""
    known = shaping.kinds.readers
    if kind in known or ("kind",) in gone:
        return kind or ""
    meant = nearest(kind, known) if kind and kind != "Secret" else ""
    if kind == "Secret":
        what, hint = "secrets are never written in YAML", "use `oauthbroker secrets set` and remove this document"
    elif kind is None:
        what, hint = "missing", f"write one of {', '.join(known)}"
    else:
        what, hint = "unknown kind", f"the nearest known one is {meant or ', '.join(known)}"
    shaping.problems.add(shaping.document.value_at(("kind",)), "kind", what, hint)
    return meant
