"""The addresses of the connect pages that a user is sent to, and the ids of their auth sessions: `as-<locator>`."""

from __future__ import annotations

import re

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret

_TICKET = re.compile(r"[A-Za-z0-9_-]{65}")  # of a connect link, and of a link to the connections
SESSION_ID = re.compile(r"as-([A-Za-z0-9_-]{22})")


class OtherConfigError(BrokerError):
    """An open request whose app this process does not have, or has otherwise. Another host may have it: the request
    stays as it is."""

    hint = "otherConfig"

    def __init__(self) -> None:
        super().__init__(Code.STATE_UNKNOWN, note="the app is not configured here, or otherwise than at the link")


def connect_link(base_url: str, ticket: Secret | None) -> str:
    """Return `<publicBaseUrl>/connect/<ticket>`. It holds no state, client id or code challenge."""
    return f"{base_url.rstrip('/')}/connect/{ticket.reveal() if ticket is not None else ''}"


def unknown_link(ticket: str) -> BrokerError:
    """Return `stateUnknown` for the ticket of a link. Its sentence says whether the link was cut or has more behind it:
    that is seen in the link itself."""
    refused = BrokerError(Code.STATE_UNKNOWN)
    refused.hint = "" if _TICKET.fullmatch(ticket) else "linkCut"
    return refused


def notice_link(base_url: str, notice: str) -> str:
    """Return the link of a notice that a grant ends. Its session is opened when the user follows it. `notice` is an id
    like a session's: its holder may ask for that consent, and the session's own checks say who may give it."""
    return f"{base_url.rstrip('/')}/connect/again/{notice}"


def private_page(base_url: str) -> str:
    """Return the address of the page that says that the link was delivered elsewhere. It opens nothing."""
    return f"{base_url.rstrip('/')}/connect"


def locator_of(auth_session_id: str) -> str:
    """Return the locator in `as-<locator>`. Raises `requestInvalid`."""
    match = SESSION_ID.fullmatch(auth_session_id) if isinstance(auth_session_id, str) else None
    if match is None:
        raise BrokerError(Code.REQUEST_INVALID, note="authSessionId")
    return match[1]
