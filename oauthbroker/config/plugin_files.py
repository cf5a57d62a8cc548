"""Read files for a plug-in: its resources without a Broker resource, for its commands, and YAML and JSON of its own."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from oauthbroker.config.bundle.loading import check_names
from oauthbroker.config.plugins.named_plugins import plugins_of
from oauthbroker.config.plugins.plugin_resources import plugin_drafts
from oauthbroker.config.problems.problems import (
    ConfigInvalidError,
    ConfigProblem,
    Keys,
    Problems,
    SourcePlace,
    dotted,
)
from oauthbroker.config.reading.files import MAX_BYTES, documents_of, read_files
from oauthbroker.config.reading.shape import written
from oauthbroker.config.reading.yaml_reader import YamlDocument, read
from oauthbroker.config.reading.yaml_scalars import AMBIGUOUS, AMBIGUOUS_WORDS
from oauthbroker.config.values.value_sources import SECRET_ADVICE
from oauthbroker.config.written.kinds import Kinds
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.strict_json import decode_json
from oauthbroker.model.plugin_resources import PluginResource, PluginResources

_HALF: Final = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")  # of a character, as JSON escapes it
_LINE: Final = re.compile(r"line (\d+), column (\d+)")


def read_resources(path: str | Path, plugin: str) -> PluginResources:
    """Read and check the resources of a plug-in in a YAML file, or in a folder and all below it.

    Pure, as `load` is: no value is resolved, so no resource has secrets. Raises ConfigInvalidError with every problem.
    """
    bundle, problems, named = Path(path), Problems(), plugins_of([plugin])
    for _, what, hint in named.problems:
        problems.add(SourcePlace(str(bundle)), "", what, hint)
    documents = documents_of(read_files(bundle, problems), problems, named.kinds)
    resources = [each for document in documents for each in written(document, problems, named.kinds)]
    check_names(documents, problems)
    folder = (bundle if bundle.is_dir() else bundle.parent).absolute()
    drafts = plugin_drafts(resources, folder, SECRET_ADVICE).get(plugin, ())
    problems.raise_if_any()
    return PluginResources(tuple(PluginResource(each.kind, each.name, each.spec) for each in drafts), folder)


def read_yaml(text: str, file: str, *, words: Collection[str] = ()) -> tuple[YamlDocument, ...]:
    """Read YAML of a plug-in's own format, as strictly as resources are read, with the line and column of each value.

    `file` is its name in messages. They show the keys of `words` and no others, because a value may stand where a key
    belongs. Raises ConfigInvalidError with every problem.
    """
    problems, kinds = Problems(), Kinds({}, frozenset(words))
    _limit(len(text.encode("utf-8", "surrogatepass")), file, problems)
    documents = read(text, file, Path(file).parent, problems, kinds)
    for document in documents:
        for path in _ambiguous(document.data):
            problems.add(document.value_at(path), dotted(kinds.masked(path)), *AMBIGUOUS_WORDS)
    problems.raise_if_any()
    return tuple(documents)


def read_json(raw: bytes, file: str) -> YamlDocument:
    """Read JSON of a plug-in's own format, as `decode_json` does, with the line and column of each value. YAML's reader
    finds them; JSON that is no YAML, such as a name of more than 1,024 characters, has its place as a whole. Raises
    ConfigInvalidError."""
    problems, note = Problems(), ""
    _limit(len(raw), file, problems)
    try:
        data = decode_json(raw, Code.CONFIG_INVALID)
        return replace(_document(raw, file, Problems()), data=data)
    except BrokerError as error:
        note = error.note or ""
    if note.endswith(("twice", "levels")):
        _document(raw, file, problems)
    told = [each for each in problems.found if each.what.startswith(("the same key", "nested"))]
    at = _LINE.search(note)
    place = SourcePlace(file, int(at[1]), int(at[2])) if at else SourcePlace(file, 1, 1)
    raise ConfigInvalidError(told or [ConfigProblem.at(place, "", note, "correct the JSON")])


def _document(raw: bytes, file: str, problems: Problems) -> YamlDocument:
    text = _HALF.sub(r"\\ufffd", raw.decode("utf-8", "replace"))  # YAML has no halves of characters
    found = read(text, file, Path(file).parent, problems, Kinds({}, frozenset()))
    return found[0] if found else YamlDocument(file=file, folder=Path(file).parent, data=None, values={}, keys={})


def _limit(size: int, file: str, problems: Problems) -> None:
    if size > MAX_BYTES:
        problems.add(SourcePlace(file), "", f"more than {MAX_BYTES // 1024} kB", "split it into several files")
        problems.raise_if_any()


def _ambiguous(data: Any, path: Keys = ()) -> Iterator[Keys]:
    """Yield the places of bare scalars without one meaning. The reader has limited how deep they stand."""
    if data is AMBIGUOUS:
        yield path
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from _ambiguous(value, (*path, key))
