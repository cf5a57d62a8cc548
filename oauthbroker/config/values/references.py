"""Follow a reference from one resource of a bundle to another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from oauthbroker.config.problems.problems import Keys
from oauthbroker.config.reading.shape import Written
from oauthbroker.config.written.fields import ObjectRef
from oauthbroker.core.spelling import nearest

W = TypeVar("W", bound=Written[Any])
_VOWELS = "AEIO"


def referred(resource: Written[Any], path: Keys, ref: ObjectRef, kind: str, known: Mapping[str, W]) -> W | None:
    """Return the resource of `known` that a reference names. None after reporting another kind or an unknown name."""
    if not resource.whole(*path):
        return None
    article = "an" if kind[0] in _VOWELS else "a"
    if ref.kind != kind or not ref.name:
        resource.refuse(path, f"not a reference to {article} {kind}", f"write {kind}/<name>")
        return None
    found = known.get(ref.name)
    if found is None and not resource.problems.unread:
        close = nearest(ref.name, known)
        noun = "app" if kind == "OAuthApp" else "resource"
        hint = f"the nearest known one is {kind}/{close}" if close else f"add the {noun}, or correct the name"
        resource.refuse(path, f"no such {kind} in this bundle", hint)
    return found
