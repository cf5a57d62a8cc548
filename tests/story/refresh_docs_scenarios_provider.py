"""Rows of docs/refresh.md that are about what the provider answers, or does not."""

from __future__ import annotations

from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.results import Ready, TokenResult
from oauthbroker.records.refresh_state import UNCLEAR_SECONDS
from oauthbroker.testing.provider import FOREVER
from tests.kit.running_broker import House
from tests.story.refresh_docs import HOUR, SHORT, Scenario, another, ended, lives, requests, shows, troubled

TROUBLE = "the provider is slow, down, busy, refuses our client or answers junk; the token lives"


def served_meanwhile(trouble: str) -> Scenario:
    async def scenario(house: House) -> list[TokenResult]:
        first = await lives(house)
        troubled(house, trouble)
        answer = await house.ask()
        assert (first.access_token, first.expires_at) == (answer.access_token, answer.expires_at)
        assert 1 == requests(house)
        return [answer]

    return scenario


for each in ("slow", "gone", "500", "503", "busy", "client", "junk"):
    shows(TROUBLE)(served_meanwhile(each))


@shows("the same, and the call named a minimum that the token does not reach")
async def a_minimum_of_its_own(house: House) -> list[TokenResult]:
    await lives(house)
    troubled(house, "500")
    return [await house.ask(min_ttl_seconds=int(SHORT))]


DOWN = "the provider is down or does not answer in time; the token has expired"


def down(trouble: str) -> Scenario:
    async def scenario(house: House) -> list[TokenResult]:
        await ended(house)
        troubled(house, trouble)
        return [await house.ask()]

    return scenario


for each in ("slow", "gone", "500", "503"):
    shows(DOWN)(down(each))


@shows("the provider was down so often that its circuit is open")
async def left_alone(house: House) -> list[TokenResult]:
    await ended(house)
    troubled(house, "503", times=FOREVER)
    for _ in range(4):
        answer = await house.ask()
    assert 3 == requests(house)
    return [answer]


@shows("the provider asks to slow down; the token has expired")
async def busy(house: House) -> list[TokenResult]:
    await ended(house)
    troubled(house, "busy")
    answer = await house.ask()
    assert 7 == answer.retry_after_seconds
    return [answer]


@shows("the provider refuses our client; the token has expired")
async def refused_client(house: House) -> list[TokenResult]:
    await ended(house)
    troubled(house, "client")
    return [await house.ask()]


@shows("the provider's answer is junk; the token has expired")
async def junk(house: House) -> list[TokenResult]:
    await ended(house)
    troubled(house, "junk")
    first = await house.ask()
    house.clock.advance(2)
    return [first, await house.ask()]


@shows("the provider says that the refresh token is dead")
async def dead(house: House) -> list[TokenResult]:
    await ended(house)
    house.idp.revoke_all("client-mail", "alice")
    return [await house.ask()]


@shows("the provider says that the refresh token is dead")
async def dead_while_the_token_lives(house: House) -> list[TokenResult]:
    await lives(house)
    house.idp.script.refresh.refuse("invalid_grant")
    return [await house.ask()]


@shows("the provider refuses in ambiguous words, and again five minutes later")
async def unclear(house: House) -> list[TokenResult]:
    await ended(house)
    house.idp.script.refresh.answer(400, times=2)
    first = await house.ask()
    house.clock.advance(UNCLEAR_SECONDS)
    return [first, await house.ask()]


WORKED = "the provider has refreshed this grant before, refuses it now with `invalid_request` or `invalid_scope`, and again five minutes later"


def refused_after_it_worked(word: str) -> Scenario:
    async def scenario(house: House) -> list[TokenResult]:
        await ended(house)
        assert isinstance(await house.ask(), Ready)
        house.clock.advance(HOUR)
        house.idp.script.refresh.refuse(word, 400, times=2)
        first = await house.ask()
        house.clock.advance(UNCLEAR_SECONDS)
        return [first, await house.ask()]

    return scenario


for each in ("invalid_request", "invalid_scope"):
    shows(WORKED)(refused_after_it_worked(each))


@shows("the provider's answer was lost, and it accepts the refresh token a second time")
async def lost_and_forgiven(house: House) -> list[TokenResult]:
    house.idp.change("client-mail", reuse_grace=60)
    return await lost(house)


@shows("the provider's answer was lost, and it does not accept the refresh token again")
async def lost(house: House) -> list[TokenResult]:
    await ended(house)
    house.idp.script.refresh.close_after_accept(after_work=True)
    first = await house.ask()
    house.clock.advance(2)
    return [first, await house.ask()]


SOMEBODY_ELSE = "the ID token or the token answer names another account"


@shows(SOMEBODY_ELSE)
async def somebody_else(house: House) -> list[TokenResult]:
    await lives(house)
    house.idp.script.refresh.alter_id_token(claims={"sub": "U666666"})
    return [await house.ask(), await house.ask()]


@shows(SOMEBODY_ELSE)
async def somebody_else_beside_the_token(house: House) -> list[TokenResult]:
    """As with Slack: the answer names the account beside the token. The ID token is the right one's."""
    owner = Owner(user_identity=IdentityRule("tokenResponse", "idp:user:{user}"))
    async with another(house, owner=owner) as slack:
        slack.idp.script.token.fields(user="U234567")
        await lives(slack)
        slack.idp.script.refresh.fields(user="U666666")
        return [await slack.ask(), await slack.ask()]


@shows("the provider granted fewer scopes than before, and the call needs the others")
async def shrunk(house: House) -> list[TokenResult]:
    await ended(house)
    house.idp.script.refresh.fields(scope="read")
    return [await house.ask(scopes=["read", "write"])]


@shows("the provider granted fewer scopes than before, and the call does not need the others")
async def shrunk_but_enough(house: House) -> list[TokenResult]:
    await ended(house)
    house.idp.script.refresh.fields(scope="read")
    answer = await house.ask(scopes=["read"])
    assert ("read",) == answer.scopes
    return [answer]


@shows("the provider granted more scopes than the app may have")
async def grown(house: House) -> list[TokenResult]:
    await ended(house)
    house.idp.script.refresh.fields(scope="read write admin everything")
    first = await house.ask()
    house.clock.advance(60)
    return [first, await house.ask()]


@shows("`minTtlSeconds` is not shorter than the lifetime of the provider's tokens")
async def too_much(house: House) -> list[TokenResult]:
    await house.connected()
    answer = await house.ask(min_ttl_seconds=int(HOUR))
    assert 0 == requests(house)
    return [answer]


@shows("the provider's tokens live shorter than 300 s, and the call names no minimum")
async def short_lived(house: House) -> list[TokenResult]:
    house.idp.change("client-mail", access_lifetime=100)
    first = await house.connected()
    house.clock.advance(49)
    assert first.access_token == (await house.ask()).access_token
    house.clock.advance(2)
    answer = await house.ask()
    assert (True, 1) == (first.access_token != answer.access_token, requests(house))
    return [answer]
