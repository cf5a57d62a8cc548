"""A bundle as one text of YAML, with the environment's fields, that a server reads back as the same bundle."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final

import yaml

from oauthbroker.config.bundle.loading import load
from oauthbroker.config.plugins.named_plugins import read_bundle
from oauthbroker.config.plugins.plugin_resources import parts
from oauthbroker.config.problems.problems import Keys, Problems
from oauthbroker.config.reading.files import absolute
from oauthbroker.config.reading.shape import written
from oauthbroker.config.reading.yaml_scalars import is_ambiguous
from oauthbroker.config.written.client_spec import ValueSource

CA: Final = "providerCa"
HIDDEN: Final = "*** hidden"
_FILES: Final = frozenset({CA, "ca", "file", "logo", "path", "root", "tokenFile"})  # members of a Broker
_OTHERS: Final = frozenset({"settings", "valueFrom"})  # whose members of the same names are no files of the broker
_ORDER: Final = ("apiVersion", "kind", "metadata", "spec")


class _Dumper(yaml.SafeDumper):
    """Quotes what two versions of YAML read differently, and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  (the name is PyYAML's)
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else '"' if text and is_ambiguous(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def resources_of(bundle: Path, env: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return every resource that the broker or a plug-in reads, in the order of the files; secrets in plain YAML are
    hidden, and the paths of files are absolute. Raises ConfigInvalidError."""
    load(bundle, env)
    problems = Problems()
    documents, named = read_bundle(bundle, problems, env)
    found = []
    for document in documents:
        if document.foreign:
            continue
        data = copy.deepcopy(document.data)
        _make_absolute(data["spec"], document.folder, _FILES if data["kind"] == "Broker" else {CA})
        for path in {path for each in written(document, problems, named.kinds) for path in _secrets(each.spec)}:
            _hide(data["spec"], path)
        found.append({name: data[name] for name in _ORDER if name in data})
    return found


def as_yaml(resources: list[dict[str, Any]]) -> str:
    return "---\n".join(
        yaml.dump(each, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120) for each in resources
    )


def _make_absolute(part: Any, folder: Path, names: AbstractSet[str]) -> None:
    """Write the paths of these members from the root, since the shown bundle may be read from another folder."""
    for name, value in part.items() if isinstance(part, dict) else enumerate(part):
        if name in names and isinstance(value, str):
            part[name] = absolute(folder, value)
        elif name not in _OTHERS and isinstance(value, dict | list):
            _make_absolute(value, folder, names)


def _secrets(spec: Any) -> Iterator[Keys]:
    """Yield the paths of secrets that are written in plain. A client id is none."""
    for path, part in parts(spec):
        if isinstance(part, ValueSource) and part.value is not None and path[-1] != "clientId":
            yield path


def _hide(data: Any, path: Keys) -> None:
    for step in path[:-1]:
        data = data[step]
    data[path[-1]] = {"value": HIDDEN}
