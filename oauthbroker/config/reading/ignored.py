"""List what a bundle holds that is not read here: resources of other programs, references that have no effect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from oauthbroker.config.problems.problems import ConfigProblem, SourcePlace, dotted
from oauthbroker.config.reading.foreign_resources import app_refs
from oauthbroker.config.reading.yaml_reader import YamlDocument
from oauthbroker.config.written.fields import API_VERSIONS
from oauthbroker.config.written.kinds import Kinds
from oauthbroker.core.dataclasses import dataclass

_WORD: Final = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@._/-]{0,127}")
_READ_AT: Final = ("spec", "auth", "oauthAppRef")


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredResource:
    """A resource of another program. What does not look like a name is a question mark."""

    place: SourcePlace
    kind: str
    name: str
    api_version: str

    def to_json(self) -> dict[str, str | int]:
        return {
            "kind": self.kind,
            "name": self.name,
            "apiVersion": self.api_version,
            "file": self.place.file,
            "line": self.place.line,
        }


def ignored(documents: Iterable[YamlDocument]) -> Iterator[IgnoredResource]:
    """Yield the resources that were skipped, in the order of the files."""
    for document in documents:
        if document.foreign:
            data, metadata = document.data, document.data.get("metadata")
            name = metadata.get("name") if isinstance(metadata, dict) else None
            place = document.value_at(())
            kind, version = _shown(data.get("kind")), _shown(data.get("apiVersion"))
            yield IgnoredResource(place=place, kind=kind, name=_shown(name), api_version=version)


def idle_refs(documents: Iterable[YamlDocument], kinds: Kinds) -> Iterator[ConfigProblem]:
    """Yield references to an OAuthApp where they have no effect, in resources of our own group: a mistake, or a
    wish."""
    for document in documents:
        data = document.data
        if not isinstance(data, dict) or data.get("apiVersion") not in API_VERSIONS:
            continue
        for path in app_refs(data):
            if document.foreign or not (path == _READ_AT or kinds.plugin_reads(data.get("kind"), path)):
                place, dots = document.key_at(path), dotted(kinds.masked(path))
                hint = "write spec.auth.oauthAppRef of a Tool, Extension, Connection or Connector"
                yield ConfigProblem.at(place, dots, "an oauthAppRef that nothing reads", hint)


def _shown(text: Any) -> str:
    return text if isinstance(text, str) and _WORD.fullmatch(text) else "?"
