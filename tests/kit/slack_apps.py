"""Two apps of one client at a provider like Slack: a consent for the bot brings the user's own token too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oauthbroker.model.apps import App, IdentityRule, Owner
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.testing import IdentityProvider
from tests.kit.running_broker import ALICE, BOB, user_app

SECOND = "mail-user"


def bot_app(idp: IdentityProvider, *, reach: str = "token", **client: Any) -> App:
    """The team's app `mail`, whose consents bring grants of `mail-user` (`also`) as well."""
    separated = Habits(scope_separator=",", token_type_aliases=("bot", "user"))
    way: Any = reach
    first = user_app(
        idp,
        subject_mode="global",
        scopes=("read", "write"),
        habits=separated,
        revocation=Revocation(reach=way),
        owner=Owner(
            global_identity=IdentityRule("tokenResponse", "idp:team:{team.id}"),
            user_identity=IdentityRule("tokenResponse", "idp:user:{authed_user.id}"),
            authorizers=(ALICE, BOB),
        ),
    )
    idp.change("client-mail", dialect="slack", **client)
    second = replace(
        first,
        name=SECOND,
        subject_mode="user",
        scopes=("search",),
        redirect=replace(first.redirect, callback_path=f"/oauth/callback/{SECOND}"),
        habits=replace(separated, scope_param="user_scope", token_path=("authed_user",), refresh_token_path=()),
        owner=Owner(user_identity=first.owner.user_identity),
        title="",
    )
    return replace(first, also=second)


def both_apps(idp: IdentityProvider, **more: Any) -> list[App]:
    first = bot_app(idp, **more)
    assert first.also is not None
    return [first, first.also]
