"""What people call an account: the login, mail address or name that its provider tells. Shown, and never compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oauthbroker.core.shapes import shaped, without_stray_joiners
from oauthbroker.core.strict_json import Json
from oauthbroker.model.apps import App, IdentitySource
from oauthbroker.protocol.answer_checks import lookup

LONGEST_NAME = 120
STANDARD_CLAIMS: Final = ("preferred_username", "email", "name")  # OpenID Connect Core 1.0 section 5.1


def name_of(app: App, known: Mapping[IdentitySource, Json | Mapping[str, Json]]) -> str:
    """Return what people call the account that the app's subjects are compared with; empty if no answer tells it.

    It is the fact that the identity rule names. Without one, the standard claims of OpenID about a user are read.
    """
    is_user = app.subject_mode == "user"
    rule = app.owner.user_identity if is_user else app.owner.global_identity
    if rule is None or rule.source not in known:
        return ""
    is_own = rule.source == "tokenResponse" or (rule.source == "userInfo" and app.habits.user_info_kind == "own")
    standard = STANDARD_CLAIMS if is_user and app.credential is None and not is_own else ()
    found = (_one_line(_fact(known[rule.source], path)) for path in ((rule.name,) if rule.name else standard))
    return next(filter(None, found), "")


def _fact(facts: Any, path: str) -> Json:
    """Return the fact at a dotted path, or of a claim whose own name is a URL."""
    if "://" in path:
        return facts.get(path) if isinstance(facts, Mapping) else None
    return lookup(facts, path)


def _one_line(value: Json) -> str:
    """Return a text without control, invisible and direction-changing characters, cut to `LONGEST_NAME`."""
    if not isinstance(value, str):
        return ""
    visible = shaped(value[: 8 * LONGEST_NAME])
    return without_stray_joiners(" ".join(visible.split())[:LONGEST_NAME])
