"""Claims challenges as an API sends them, tools that report them, and what the provider is asked then."""

from __future__ import annotations

import base64
import json
from typing import Any

from oauthbroker import Turn
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.testing import IdentityProvider
from tests.kit.running_broker import Harness, turn
from tests.unit.protocol.kit import raw_answer

CLAIMS: dict[str, Any] = {"access_token": {"acrs": {"essential": True, "value": "c1"}}}
OTHER: dict[str, Any] = {"access_token": {"acrs": {"essential": True, "value": "c2"}}}


def encoded(claims: Any = CLAIMS) -> str:
    return base64.b64encode(json.dumps(claims).encode()).decode()


def challenge(claims: str) -> str:
    return (
        f'Bearer realm="", authorization_uri="https://login.example/a", error="insufficient_claims", claims="{claims}"'
    )


def refusing(claims: Any = CLAIMS) -> bytes:
    return raw_answer(401, b"{}", www_authenticate=challenge(encoded(claims)))


def claims_asked_for(idp: IdentityProvider, path: str = "authorize") -> list[Any]:
    """The claims of each authorization request, of those that were pushed with `path="par"`."""
    forms = [seen.form for seen in idp.seen(path) if "code_challenge" in seen.form]
    return [json.loads(str(form["claims"])) if "claims" in form else None for form in forms]


async def reported(harness: Harness, claims: Any, app: str = "mail", of: Turn | None = None) -> Any:
    """What a tool is answered that reports the token it has, with the text of a challenge."""
    ready = await harness.ask(app, of=of)
    assert isinstance(ready, Ready), ready
    return await harness.broker.oauth(of or turn()).report_rejected(app, ready.access_token, claims=claims)


async def challenged(harness: Harness, claims: Any = CLAIMS, app: str = "mail", of: Turn | None = None) -> Any:
    """The link after such a report."""
    asked = await reported(harness, encoded(claims), app, of)
    assert isinstance(asked, AuthorizationRequired), asked
    return asked
