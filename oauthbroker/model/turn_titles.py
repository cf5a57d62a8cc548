"""What a turn's runtime calls an agent and a subject, for people to read. Never an identity, and shown as hearsay.

`turn.origin.titles` may hold `agent`, `user` and `global`. Without a title for the user, `turn.auth.actor.display` of
an actor of type `user` serves.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from oauthbroker.core.strict_json import Json
from oauthbroker.model.turn import ResumeTarget, SubjectMode

LONGEST = 80
_JOINERS = "\u200c\u200d"  # Persian words and joined emoji need them


def agent_title(target: ResumeTarget) -> str | None:
    """Return the runtime's title for the agent, if it gives one."""
    return _fit(_titles(target).get("agent"))


def subject_title(target: ResumeTarget, mode: SubjectMode) -> str | None:
    """Return the runtime's title for the subject of this mode, if it gives one."""
    title, actor = _fit(_titles(target).get(mode)), target.auth.actor
    if title is None and mode == "user" and actor.get("type") == "user":
        return _fit(actor.get("display"))
    return title


def _titles(target: ResumeTarget) -> Mapping[str, Json]:
    titles = target.origin.get("titles")
    return titles if isinstance(titles, Mapping) else {}


def _fit(title: Json) -> str | None:
    """Return the title where it is one short line of visible characters. A title that is not is no title: cleaned up,
    it would be a name that was never given. A turn is not refused for it, as people choose their own names
    elsewhere."""
    if not isinstance(title, str) or not title.strip() or len(title) > LONGEST:
        return None
    return title.strip() if all(_is_visible(character) for character in title) else None


def _is_visible(character: str) -> bool:
    category = unicodedata.category(character)
    return character in _JOINERS or (category[0] != "C" and category not in {"Zl", "Zp"})
