"""An app of the client credentials flow, and token calls that carry no person."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oauthbroker.model.apps import App, Owner, Redirect
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.testing import IdentityProvider
from tests.kit.running_broker import BASE, Harness, turn, user_app

MACHINE = "machine"


def machine_app(idp: IdentityProvider, **changes: Any) -> App:
    app = user_app(idp, MACHINE)
    alone: dict[str, Any] = {"flow": "clientCredentials", "subject_mode": "global", "owner": Owner()}
    return replace(app, **{**alone, "redirect": Redirect("", BASE), **changes})


def team_turn(**more: Any) -> Any:
    """A turn that carries the team, and no person."""
    return turn(user=None, **more)


async def machine_ready(harness: Harness, scopes: list[str] | None = None, **more: Any) -> Ready:
    result = await harness.ask(MACHINE, scopes, team_turn(), **more)
    assert isinstance(result, Ready), result
    return result


async def machine_failed(harness: Harness, scopes: list[str] | None = None, **more: Any) -> Failed:
    result = await harness.ask(MACHINE, scopes, team_turn(), **more)
    assert isinstance(result, Failed), result
    return result
