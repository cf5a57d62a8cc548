"""The one turn of a person's own connections on a machine. Its subject is fixed: no call can name another one."""

from __future__ import annotations

from typing import Final

from oauthbroker.model.apps import App
from oauthbroker.model.turn import Turn, TurnAuth

SUBJECT: Final = "local:user:me"
AGENT: Final = "local"


def local_turn(app: str = "", account: str = "") -> Turn:
    """Return the person's own turn, with this account of the app."""
    accounts = {app: [account]} if account else {}
    return Turn(AGENT, AGENT, auth=TurnAuth(subjects={"user": SUBJECT}, accounts=accounts))


def is_own(app: App, agent: str, subject: str) -> bool:
    """Tell whether a request is one of this turn: the person asks for themselves, and no agent does."""
    return app.owner.binding == "localOperator" and (agent, subject) == (AGENT, SUBJECT)
