"""Check the resources of the plug-ins that a bundle names, and find the origins of their secrets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import iscoroutine
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from oauthbroker.config.problems.problems import ConfigInvalidError, Keys
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.reading.shaping import report_broken
from oauthbroker.config.values.references import referred
from oauthbroker.config.values.value_sources import Source, source_of
from oauthbroker.config.written.client_spec import ValueSource
from oauthbroker.config.written.fields import ObjectRef
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.foreign_code import MisuseError, is_from_outside


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginDraft:
    """A plug-in's resource, complete but for its secrets."""

    kind: str
    name: str
    spec: Any = field(repr=False)
    sources: Mapping[Keys, Source] = field(repr=False)


def plugin_drafts(
    resources: Sequence[Written[Any]], folder: Path, plain_hint: str
) -> dict[str, tuple[PluginDraft, ...]]:
    """Check the resources of all plug-ins. Return those of each plug-in, in the order of the files."""
    found: dict[str, list[PluginDraft]] = {}
    seen: dict[str, _SeenByPlugin] = {}
    for each in resources:
        if each.plugin:
            _check(
                each,
                seen.setdefault(each.plugin, _SeenByPlugin(plugin=each.plugin, resources=resources, folder=folder)),
            )
            sources = _sources(each, plain_hint)
            found.setdefault(each.plugin, []).append(
                PluginDraft(kind=each.kind, name=each.name, spec=each.spec, sources=sources)
            )
    return {plugin: tuple(drafts) for plugin, drafts in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeenByPlugin:
    """The bundle as one plug-in sees it: its own reading of a resource before the broker's or another plug-in's."""

    plugin: str
    resources: Iterable[Written[Any]]
    folder: Path
    _by_kind: dict[str, dict[str, Written[Any]]] = field(default_factory=dict)

    def of(self, kind: str) -> dict[str, Written[Any]]:
        if kind not in self._by_kind:
            found = self._by_kind[kind] = {}
            for each in self.resources:
                if each.kind == kind and (each.plugin == self.plugin or each.name not in found):
                    found[each.name] = each
        return self._by_kind[kind]

    def refer(self, resource: Any, path: Sequence[str | int], kind: str) -> Written[Any] | None:
        ref = dict(parts(resource.spec)).get(tuple(path))
        if not isinstance(ref, ObjectRef):
            resource.missing(path, f"write {kind}/<name>")
            return None
        return referred(resource, tuple(path), ref, kind, self.of(kind))


def _check(resource: Written[Any], seen: _SeenByPlugin) -> None:
    """Run the check of the plug-in. A check that raises is a problem of its own."""
    if resource.reader is None or resource.reader.check is None:
        return
    try:
        found: object = resource.reader.check(resource, seen)
    except ConfigInvalidError:  # too many problems
        raise
    except BaseException as error:
        if is_from_outside(error):
            raise
        report_broken(resource.reader, resource.document, resource.problems, error)
    else:
        if iscoroutine(found):
            found.close()
            never = MisuseError("its check is an async function, which never runs")
            report_broken(resource.reader, resource.document, resource.problems, never)


def _sources(resource: Written[Any], plain_hint: str) -> dict[Keys, Source]:
    """Return the origin of each secret by its path."""
    values = [(path, value) for path, value in parts(resource.spec) if isinstance(value, ValueSource)]
    found = [(path, source_of(resource, path, value, plain_hint=plain_hint)) for path, value in values]
    return {path: source for path, source in found if source is not None}


def parts(value: Any, path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
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
        yield from parts(part, (*path, step))
