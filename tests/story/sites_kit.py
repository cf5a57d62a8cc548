"""The sites of one account, as Atlassian lists them."""

from __future__ import annotations

from typing import Any

from oauthbroker.model.connection_facts import ConnectionFacts, FactRequest
from oauthbroker.testing import IdentityProvider

ONE = {"id": "11111111-aaaa", "name": "one", "url": "https://one.atlassian.net"}


TWO = {"id": "22222222-bbbb", "name": "<b>two</b>", "url": "https://two.atlassian.net"}


def sites(idp: IdentityProvider, **changes: Any) -> ConnectionFacts:
    """Atlassian's accessible resources."""
    said: dict[str, Any] = {"each": {"cloudid": "id", "site": "url"}, "label": "name", "choose": True, **changes}
    return ConnectionFacts(requests=(FactRequest(url=idp.url("/api/me"), **said),))


def lists(idp: IdentityProvider, *elements: Any, status: int = 200, times: int | None = 1) -> None:
    idp.script.resource.answer(status, list(elements), times=times)
