"""Names that a test misspelt: the provider refuses each, with the nearest name that it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from oauthbroker.testing import Client, IdentityProvider

MISSPELT: dict[str, tuple[Callable[[IdentityProvider], Any], str]] = {
    "count": (lambda idp: idp.count("tokens"), "token"),
    "seen": (lambda idp: idp.seen("refresh_tokens"), "refresh_token"),
    "count of a client": (lambda idp: idp.count("token", "bott"), "bot"),
    "expire": (lambda idp: idp.expire("bott"), "bot"),
    "revoke_all of a client": (lambda idp: idp.revoke_all("bott"), "bot"),
    "revoke_all of an account": (lambda idp: idp.revoke_all("bot", "alicie"), "alice"),
    "account": (lambda idp: idp.account("alcie"), "alice"),
    "client": (lambda idp: idp.client("Bot"), "bot"),
    "change": (lambda idp: idp.change("bott", pkce="off"), "bot"),
    "rotate_secret": (lambda idp: idp.rotate_secret("bott"), "bot"),
    "script": (lambda idp: idp.script.client("bott").refresh.answer(503), "bot"),
    "families": (lambda idp: idp.families("bott"), "bot"),
    "families of an account": (lambda idp: idp.families(login="alicie"), "alice"),
    "living tokens": (lambda idp: idp.living_tokens("bott"), "bot"),
    "refusals": (lambda idp: idp.refusals(client_id="bott"), "bot"),
    "token responses": (lambda idp: idp.token_responses("bott"), "bot"),
}


@pytest.mark.parametrize("name", MISSPELT)
async def test_a_misspelt_name_is_refused_with_the_nearest_one(name: str) -> None:
    call, close = MISSPELT[name]
    async with IdentityProvider(clients=[Client("bot", redirect_uris=("https://bot.example/callback",))]) as idp:
        with pytest.raises(ValueError, match=rf"^The provider has no .* Did you mean '{close}'\?$"):
            call(idp)


async def test_a_name_with_nothing_near_it_is_refused_with_those_that_are_known(
    identity_provider: IdentityProvider,
) -> None:
    with pytest.raises(ValueError, match="Known are: alice, bob, mallory"):
        identity_provider.account("zzz")


async def test_each_endpoint_and_grant_type_can_be_counted_before_its_first_request(
    identity_provider: IdentityProvider,
) -> None:
    for name in ("token", "userinfo", "revoke", "verification", "unknown", "refresh_token", "fb_exchange_token"):
        assert 0 == identity_provider.count(name)
