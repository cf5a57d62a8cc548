"""The one turn of a person's own connections on a machine. Its subject is fixed: no call can name another one."""

from __future__ import annotations

from typing import Final, Literal

from oauthbroker.model.apps import App
from oauthbroker.model.turn import Turn, TurnAuth

SUBJECT: Final = "local:user:me"
AGENT: Final = "local"
Asker = Literal["agent", "program", "person"]
"""An agent, a program of the person at this machine, or this person alone, who typed `oauthbroker login`."""


def local_turn(app: str = "", account: str = "") -> Turn:
    """Return the person's own turn, with this account of the app."""
    accounts = {app: [account]} if account else {}
    return Turn(AGENT, AGENT, auth=TurnAuth(subjects={"user": SUBJECT}, accounts=accounts))


def asker_of(app: App, agent: str, subject: str) -> Asker:
    """Return who asks for a connection."""
    if app.owner.binding != "localOperator":
        return "agent"
    return "person" if (agent, subject) == (AGENT, SUBJECT) else "program"
