"""Tell our resources from those of other programs that share the bundle, and near misses of ours from both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal

from oauthbroker.config.fields import API_VERSIONS
from oauthbroker.config.kinds import Kinds
from oauthbroker.config.problems import Keys
from oauthbroker.config.resource_specs import PARTS
from oauthbroker.config.spelling import is_slip, is_slip_of_field

Standing = Literal["ours", "near", "unsaid", "foreign"]

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
    of_version, of_kind = _version_standing(data.get("apiVersion"), kind, kinds), _kind_standing(kind, kinds)
    if "foreign" in {of_version, of_kind}:
        return True
    return kind in PARTS and not kinds.room_reads(kind) and not _speaks_of_auth(data.get("spec"))


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
        return value.get("kind") == "OAuthApp"
    return isinstance(value, str) and value.startswith("OAuthApp/")


def _speaks_of_auth(spec: Any) -> bool:
    if not isinstance(spec, dict):
        return False
    return any(key == "auth" or is_slip_of_field(key, "auth") for key in spec) or any(app_refs(spec))


def _version_standing(version: Any, kind: Any, kinds: Kinds) -> Standing:
    if not isinstance(version, str):
        return "unsaid"
    if version in API_VERSIONS:
        return "ours"
    group = version.partition("/")[0]
    if any(group.casefold() == it or is_slip(group, it, 2) for it in _GROUPS):
        return "near"
    return "near" if version in _VERSIONS and kinds.of(kind) else "foreign"


def _kind_standing(kind: Any, kinds: Kinds) -> Standing:
    if not isinstance(kind, str):
        return "unsaid"
    if kinds.of(kind):
        return "ours"
    if kind in _RUNTIME_KINDS:
        return "foreign"
    return "near" if kind == "Secret" or any(is_slip(kind, it) for it in kinds.readers) else "foreign"
