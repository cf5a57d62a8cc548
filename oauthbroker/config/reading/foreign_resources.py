"""Tell our resources from those of other programs that share the bundle, and near misses of ours from both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.written.fields import API_VERSIONS
from oauthbroker.config.written.kinds import Kinds
from oauthbroker.config.written.resource_specs import PARTS
from oauthbroker.core.spelling import is_slip, is_slip_of_field
from oauthbroker.model.token_request import APP_KINDS

# Kinds of the runtime: no typos of ours, even where their names resemble them.
_RUNTIME_KINDS: Final = frozenset(
    {"Agent", "ExtensionHandler", "Manifest", "MCPServer", "Model", "Package", "Policy", "Prompt", "ResourceType",
     "Swarm"}
)  # fmt: skip
_GROUPS: Final = frozenset(it.partition("/")[0] for it in API_VERSIONS)
_VERSIONS: Final = frozenset(it.partition("/")[2] for it in API_VERSIONS)


def is_foreign(data: Any, kinds: Kinds) -> bool:
    """Tell whether another program reads this document. A near miss of ours is not foreign, so that it is refused."""
    if not isinstance(data, dict):
        return False
    kind = data.get("kind")
    if _is_foreign_version(data.get("apiVersion"), kind, kinds) or _is_foreign_kind(kind, kinds):
        return True
    return kind in PARTS and not kinds.plugin_reads(kind) and not _speaks_of_auth(data.get("spec"))


def app_refs(data: Any, path: Keys = ()) -> Iterator[Keys]:
    """Yield the paths of all references to an OAuthApp by the name `oauthAppRef`."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key.casefold() == "oauthappref" and _is_app_ref(value):
                yield (*path, key)
            else:
                yield from app_refs(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from app_refs(value, (*path, index))


def _is_app_ref(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("kind") in APP_KINDS
    return isinstance(value, str) and value.partition("/")[0] in APP_KINDS and "/" in value


def _speaks_of_auth(spec: Any) -> bool:
    if not isinstance(spec, dict):
        return False
    return any(key == "auth" or is_slip_of_field(key, "auth") for key in spec) or any(app_refs(spec))


def _is_foreign_version(version: Any, kind: Any, kinds: Kinds) -> bool:
    if not isinstance(version, str) or version in API_VERSIONS:
        return False
    group = version.partition("/")[0]
    if any(group.casefold() == it or is_slip(group, it, 2) for it in _GROUPS):
        return False
    return version not in _VERSIONS or not kinds.of(kind)


def _is_foreign_kind(kind: Any, kinds: Kinds) -> bool:
    if not isinstance(kind, str) or kind == "Secret" or kinds.of(kind):
        return False
    return kind in _RUNTIME_KINDS or not any(is_slip(kind, it) for it in kinds.readers)
