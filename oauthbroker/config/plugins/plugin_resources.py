"""Check the resources of the add-on rooms that a bundle names, and find the origins of their secrets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from oauthbroker.config.problems.problems import ConfigRefused, Keys
from oauthbroker.config.reading.shape import Written, report_broken
from oauthbroker.config.values.references import referred
from oauthbroker.config.values.value_sources import Source, source_of
from oauthbroker.config.written.client_spec import ValueSource
from oauthbroker.config.written.fields import ObjectRef


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomDraft:
    """A room's resource, complete but for its secrets."""

    kind: str
    name: str
    spec: Any = field(repr=False)
    sources: Mapping[Keys, Source] = field(repr=False)


def room_drafts(resources: Sequence[Written[Any]], folder: Path, plain_todo: str) -> dict[str, tuple[RoomDraft, ...]]:
    """Check the resources of all rooms. Return those of each room, in the order of the files."""
    found: dict[str, list[RoomDraft]] = {}
    seen: dict[str, _SeenByRoom] = {}
    for each in resources:
        if each.room:
            _check(each, seen.setdefault(each.room, _SeenByRoom(room=each.room, resources=resources, folder=folder)))
            sources = _sources(each, plain_todo)
            found.setdefault(each.room, []).append(
                RoomDraft(kind=each.kind, name=each.name, spec=each.spec, sources=sources)
            )
    return {room: tuple(drafts) for room, drafts in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeenByRoom:
    """The bundle as one room sees it: its own reading of a resource before the broker's or another room's."""

    room: str
    resources: Iterable[Written[Any]]
    folder: Path
    _by_kind: dict[str, dict[str, Written[Any]]] = field(default_factory=dict)

    def of(self, kind: str) -> dict[str, Written[Any]]:
        if kind not in self._by_kind:
            found = self._by_kind[kind] = {}
            for each in self.resources:
                if each.kind == kind and (each.room == self.room or each.name not in found):
                    found[each.name] = each
        return self._by_kind[kind]

    def refer(self, resource: Any, path: Sequence[str | int], kind: str) -> Written[Any] | None:
        ref = dict(_parts(resource.spec)).get(tuple(path))
        if not isinstance(ref, ObjectRef):
            resource.missing(path, f"write {kind}/<name>")
            return None
        return referred(resource, tuple(path), ref, kind, self.of(kind))


def _check(resource: Written[Any], seen: _SeenByRoom) -> None:
    """Run the check of the room. A check that raises is a problem of its own."""
    if resource.reader is None or resource.reader.check is None:
        return
    try:
        resource.reader.check(resource, seen)
    except ConfigRefused:  # too many problems
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  (code of another package: anything may happen)
        report_broken(resource.reader, resource.document, resource.problems, error)


def _sources(resource: Written[Any], plain_todo: str) -> dict[Keys, Source]:
    """Return the origin of each secret by its path."""
    values = [(path, value) for path, value in _parts(resource.spec) if isinstance(value, ValueSource)]
    found = [(path, source_of(resource, path, value, plain_todo=plain_todo)) for path, value in values]
    return {path: source for path, source in found if source is not None}


def _parts(value: Any, path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield each part of a spec with its path as written."""
    inner: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        inner = [(fields[name].alias or name, part) for name, part in value if name in fields]
    elif isinstance(value, Mapping):
        inner = value.items()
    elif isinstance(value, list | tuple):
        inner = enumerate(value)
    for step, part in inner:
        yield (*path, step), part
        yield from _parts(part, (*path, step))
