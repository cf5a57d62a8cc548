"""Rows of docs/refresh-results.md that are about what the provider answers, or does not."""

from __future__ import annotations

from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.token_results import Ready, TokenResult
from oauthbroker.records.refresh_state import UNCLEAR_SECONDS
from oauthbroker.testing.provider import FOREVER
from tests.kit.running_broker import BOB, Harness, turn
from tests.story.refresh_docs import HOUR, SHORT, Scenario, another, disturbed, ended, lives, requests, shows

DISTURBANCE = "the provider is slow, down, busy, refuses our client or answers junk; the token lives"


def served_meanwhile(disturbance: str) -> Scenario:
    async def scenario(harness: Harness) -> list[TokenResult]:
        first = await lives(harness)
        disturbed(harness, disturbance)
        answer = await harness.ask()
        assert (first.access_token, first.expires_at) == (answer.access_token, answer.expires_at)
        assert 1 == requests(harness)
        return [answer]

    return scenario


for each in ("slow", "gone", "500", "503", "busy", "client", "junk"):
    shows(DISTURBANCE, tool="`ready`, `degraded`")(served_meanwhile(each))


@shows(
    "the same, and the call named a minimum that the token does not reach",
    tool="`error`, as if it had ended: `providerUnreachable`, `retryable`",
)
async def a_minimum_of_its_own(harness: Harness) -> list[TokenResult]:
    await lives(harness)
    disturbed(harness, "500")
    return [await harness.ask(min_ttl_seconds=int(SHORT))]


DOWN = "the provider is down or does not answer in time; the token has expired"


def down(disturbance: str) -> Scenario:
    async def scenario(harness: Harness) -> list[TokenResult]:
        await ended(harness)
        disturbed(harness, disturbance)
        return [await harness.ask()]

    return scenario


for each in ("slow", "gone", "500", "503"):
    shows(DOWN, tool="`error` `providerUnreachable`, `retryable`")(down(each))


@shows(
    "the provider was down so often that its circuit is open",
    tool="`error` `providerUnreachable`, `retryable`, `retryAfterSeconds`",
)
async def left_alone(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    disturbed(harness, "503", times=FOREVER)
    for _ in range(4):
        answer = await harness.ask()
    assert 3 == requests(harness)
    return [answer]


@shows(
    "the provider asks to slow down; the token has expired",
    tool="`error` `providerRateLimited`, `retryable`, `retryAfterSeconds`",
)
async def busy(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    disturbed(harness, "busy")
    answer = await harness.ask()
    assert 7 == answer.retry_after_seconds
    return [answer]


@shows("the provider refuses our client; the token has expired", tool="`error` `appMisconfigured`")
async def refused_client(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    disturbed(harness, "client")
    return [await harness.ask()]


@shows(
    "the provider's answer is junk; the token has expired",
    tool="`error` `providerUnreachable`, `retryable`; then, once it answers well again, `ready`",
)
async def junk(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    disturbed(harness, "junk")
    first = await harness.ask()
    harness.clock.advance(2)
    return [first, await harness.ask()]


@shows(
    "the provider gives new tokens no time: `expires_in` is 0 or less",
    tool="`error` `providerUnreachable`, `retryable`, `retryAfterSeconds`; then, once it answers well again, `ready`",
)
async def no_time(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    harness.idp.script.refresh.fields(expires_in=0)
    first = await harness.ask()
    harness.clock.advance(2)
    return [first, await harness.ask()]


def given_again(*, stated: bool, again: bool) -> Scenario:
    """The provider `stated` the end of its token at first, or does so when it gives it `again`."""

    async def scenario(harness: Harness) -> list[TokenResult]:
        if not stated:
            harness.idp.script.token.fields(expires_in=None)
        first = await harness.connected()
        harness.clock.advance(HOUR)
        refresh = harness.idp.script.refresh
        life = HOUR if again else None
        refresh.fields(access_token=first.access_token.reveal(), id_token=None, expires_in=life)
        answers = [await harness.ask()]
        if isinstance(answers[0], Ready):
            return answers
        harness.clock.advance(2)
        return [*answers, await harness.ask()]

    return scenario


AGAIN = "the provider gives the token that has ended once more, with a new end, or never states when its tokens end"
shows(AGAIN, tool="`ready`")(given_again(stated=True, again=True))
shows(AGAIN)(given_again(stated=False, again=False))
shows(
    "the provider gives the token that has ended, by its own earlier answer, without a new end",
    tool="`error` `tokenUnchanged`; then, once it answers well again, `ready`",
)(given_again(stated=True, again=False))


@shows("the provider says that the refresh token is dead", tool="`authorization_required` `expired`", user="a link")
async def dead(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    harness.idp.revoke_all("client-mail", "alice")
    return [await harness.ask()]


@shows("the provider says that the refresh token is dead")
async def dead_while_the_token_lives(harness: Harness) -> list[TokenResult]:
    await lives(harness)
    harness.idp.script.refresh.refuse("invalid_grant")
    return [await harness.ask()]


@shows(
    "the provider refuses in ambiguous words, and again five minutes later",
    tool="`error` `refreshRefused`, `retryable`, `retryAfterSeconds`; then `authorization_required` `expired`",
    user="at the second time, a link",
)
async def unclear(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    harness.idp.script.refresh.answer(400, times=2)
    first = await harness.ask()
    harness.clock.advance(UNCLEAR_SECONDS)
    return [first, await harness.ask()]


WORKED = "the provider has refreshed this grant before, refuses it now with `invalid_request` or `invalid_scope`, and again five minutes later"


def refused_after_it_worked(word: str) -> Scenario:
    async def scenario(harness: Harness) -> list[TokenResult]:
        await ended(harness)
        assert isinstance(await harness.ask(), Ready)
        harness.clock.advance(HOUR)
        harness.idp.script.refresh.refuse(word, 400, times=2)
        first = await harness.ask()
        harness.clock.advance(UNCLEAR_SECONDS)
        return [first, await harness.ask()]

    return scenario


for each in ("invalid_request", "invalid_scope"):
    shows(
        WORKED,
        tool="`error` `refreshRefused`, `retryable`, `retryAfterSeconds`; then `authorization_required` `expired`",
        user="at the second time, a link",
    )(refused_after_it_worked(each))


async def refused_alone(harness: Harness) -> list[TokenResult]:
    """Alice is refused for five minutes; Bob is not."""
    bob, refresh, found = turn(user=BOB), harness.idp.script.refresh, list[TokenResult]()
    await harness.connected(account="bob", of=bob)
    await ended(harness)
    for pause in (60, UNCLEAR_SECONDS - 60, 0):
        refresh.refuse("invalid_client", 401)
        found.append(await harness.ask())
        assert isinstance(await harness.ask(of=bob), Ready)
        harness.clock.advance(pause)
    return found


@shows(
    (
        "the provider refuses this grant alone, in any way, for five minutes, while it refreshes "
        "another grant of the app"
    ),
    tool=(
        "`error` `appMisconfigured`; then `error` `refreshRefused`, `retryable`, `retryAfterSeconds`; "
        "then `authorization_required` `expired`"
    ),
    user="after five minutes, a link",
)
async def refused_alone_for_long(harness: Harness) -> list[TokenResult]:
    return await refused_alone(harness)


@shows(
    "it accepts the refresh token again after that",
    tool="`authorization_required` `expired`; then `ready`",
    user="a link, until it is `ready`",
)
async def refused_alone_and_taken_again(harness: Harness) -> list[TokenResult]:
    *_, link = await refused_alone(harness)
    harness.clock.advance(UNCLEAR_SECONDS)
    return [link, await harness.ask()]


@shows(
    (
        "the provider refuses in a way that may be about our client, for hours, and no other grant of "
        "the app is refreshed"
    ),
    tool="`error` `appMisconfigured`; then `error` `appMisconfigured`",
)
async def refused_and_nothing_is_known(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    disturbed(harness, "client", times=FOREVER)
    answers = []
    for _ in range(40):
        answers.append(await harness.ask())
        harness.clock.advance(360)
    return [answers[0], answers[-1]]


@shows("the provider asks to slow down in other words than 429", tool="`error` `providerRateLimited`, `retryable`")
async def busy_in_other_words(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    words = {"error": "Access Denied", "error_description": "You have made too many requests."}
    harness.idp.script.refresh.answer(400, words)
    return [await harness.ask()]


@shows(
    "the provider's answer was lost, and it accepts the refresh token a second time",
    tool="`error` `providerUnreachable`, `retryable`; then `ready`",
)
async def lost_and_forgiven(harness: Harness) -> list[TokenResult]:
    harness.idp.change("client-mail", reuse_grace=60)
    return await lost(harness)


@shows(
    "the provider's answer was lost, and it does not accept the refresh token again",
    tool="`error` `providerUnreachable`, `retryable`; then `authorization_required` `refreshUncertain`",
    user="then a link",
)
async def lost(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    harness.idp.script.refresh.close_after_accept(after_work=True)
    first = await harness.ask()
    harness.clock.advance(2)
    return [first, await harness.ask()]


SOMEBODY_ELSE = "the ID token or the token answer names another account"


@shows(SOMEBODY_ELSE, tool="`error` `subjectMismatch`; then `authorization_required` `revoked`", user="then a link")
async def somebody_else(harness: Harness) -> list[TokenResult]:
    await lives(harness)
    harness.idp.script.refresh.alter_id_token(claims={"sub": "U666666"})
    return [await harness.ask(), await harness.ask()]


@shows(SOMEBODY_ELSE)
async def somebody_else_beside_the_token(harness: Harness) -> list[TokenResult]:
    """As with Slack: the answer names the account beside the token. The ID token is the right one's."""
    owner = Owner(user_identity=IdentityRule("tokenResponse", "idp:user:{user}"))
    async with another(harness, owner=owner) as slack:
        slack.idp.script.token.fields(user="U234567")
        await lives(slack)
        slack.idp.script.refresh.fields(user="U666666")
        return [await slack.ask(), await slack.ask()]


@shows(
    "the provider granted fewer scopes than before, and the call needs the others",
    tool="`authorization_required` `scopes`",
    user="a link that asks for all of them",
)
async def shrunk(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    harness.idp.script.refresh.fields(scope="read")
    return [await harness.ask(scopes=["read", "write"])]


@shows("the provider granted fewer scopes than before, and the call does not need the others", tool="`ready`")
async def shrunk_but_enough(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    harness.idp.script.refresh.fields(scope="read")
    answer = await harness.ask(scopes=["read"])
    assert ("read",) == answer.scopes
    return [answer]


@shows(
    "the provider granted more scopes than the app may have",
    tool="`error` `providerUnreachable`, `retryable`; then, once it answers well again, `ready`",
)
async def grown(harness: Harness) -> list[TokenResult]:
    await ended(harness)
    harness.idp.script.refresh.fields(scope="read write admin everything")
    first = await harness.ask()
    harness.clock.advance(60)
    return [first, await harness.ask()]


@shows(
    "`minTtlSeconds` is not shorter than the lifetime of the provider's tokens", tool="`error` `minTtlUnsatisfiable`"
)
async def too_much(harness: Harness) -> list[TokenResult]:
    await harness.connected()
    answer = await harness.ask(min_ttl_seconds=int(HOUR))
    assert 0 == requests(harness)
    return [answer]


@shows(
    "the provider's tokens live shorter than 600 s, and the call names no minimum",
    tool="`ready` with the same token for half of its life, then with a new one",
)
async def short_lived(harness: Harness) -> list[TokenResult]:
    harness.idp.change("client-mail", access_lifetime=100)
    first = await harness.connected()
    harness.clock.advance(49)
    assert first.access_token == (await harness.ask()).access_token
    harness.clock.advance(2)
    answer = await harness.ask()
    assert (True, 1) == (first.access_token != answer.access_token, requests(harness))
    return [answer]
