"""The answers of a token endpoint to a refresh (cases 19-31 once more, and 32): the tool is told their meaning, the
grant stays as it was, and the next good answer goes on from there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.observability.metrics import Metric
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.kit.running_broker import BOB, Harness, running, turn, user_app
from tests.story.bad_token_answers import GONE, Spoil, Spoiling
from tests.story.refresh_kit import LIFETIME, PAUSE

SPOILING = Spoiling("refresh")
answers, with_members, forges = SPOILING.answers, SPOILING.with_members, SPOILING.forges

C18 = pytest.mark.case("18")
C19 = pytest.mark.case("19")
C20 = pytest.mark.case("20")
C21 = pytest.mark.case("21")
C22 = pytest.mark.case("22")
C23 = pytest.mark.case("23")
C24 = pytest.mark.case("24")
C25 = pytest.mark.case("25")
C26 = pytest.mark.case("26")
C27 = pytest.mark.case("27")
C28 = pytest.mark.case("28")
C30 = pytest.mark.case("30")
C31 = pytest.mark.case("31")
C32 = pytest.mark.case("32")
C58 = pytest.mark.case("58")

INVALID, DOWN, EXCEEDED = Code.TOKEN_RESPONSE_INVALID, Code.PROVIDER_UNREACHABLE, Code.SCOPE_EXCEEDED
UNCLEAR = Code.REFRESH_REFUSED
UNUSABLE = {INVALID, EXCEEDED, Code.ID_TOKEN_INVALID}  # answers that we refuse; the next one may be good
TOKENS = {"access_token": "CANARY", "token_type": "bearer"}
# (what the provider does, the code of the failure, how many tokens are revoked)
JUNK = [
    pytest.param(answers(200, {"ok": False}), INVALID, 0, marks=C19),
    pytest.param(answers(200, {"ok": False, **TOKENS}), INVALID, 0, marks=C19),
    pytest.param(answers(200, {"error": None, **TOKENS}), INVALID, 0, marks=C19),
    pytest.param(answers(400, TOKENS), UNCLEAR, 0, marks=C19),
    pytest.param(answers(200, {}), INVALID, 0, marks=C19),
    pytest.param(answers(400, {"error": "CANARY"}), UNCLEAR, 0, marks=C18),
    pytest.param(answers(200, "<html>CANARY</html>"), INVALID, 0, marks=C20),
    pytest.param(answers(200, ["CANARY"]), INVALID, 0, marks=C20),
    pytest.param(answers(200, '{"access_token": "CANARY", "token_ty'), INVALID, 0, marks=C20),
    pytest.param(answers(200, '{"access_token": "CANARY", "expires_in": NaN}'), INVALID, 0, marks=C20),
    pytest.param(answers(200, b"[" * 100_000), INVALID, 0, marks=C20),
    pytest.param(answers(200, '{"access_token": "a", "access_token": "CANARY"}'), INVALID, 0, marks=C20),
    pytest.param(lambda idp, canary: idp.script.refresh.redirect("http://127.0.0.1:1/x"), INVALID, 0, marks=C22),
    pytest.param(lambda idp, canary: idp.script.refresh.close_after_accept(), DOWN, 0, marks=C23),
    pytest.param(lambda idp, canary: idp.script.refresh.endless(), DOWN, 0, marks=C24),
    pytest.param(lambda idp, canary: idp.script.refresh.gzip_bomb(30), DOWN, 0, marks=C24),
    pytest.param(with_members(access_token=GONE), INVALID, 0, marks=C25),
    pytest.param(with_members(access_token=""), INVALID, 0, marks=C25),
    pytest.param(with_members(access_token=1234567), INVALID, 0, marks=C25),
    pytest.param(with_members(access_token="a\r\nX-Evil: 1"), INVALID, 0, marks=C25),
    pytest.param(with_members(access_token="t\u00f6ken"), INVALID, 0, marks=C25),
    pytest.param(with_members(token_type=GONE), INVALID, 1, marks=C26),
    pytest.param(with_members(token_type="mac"), INVALID, 1, marks=C26),
    pytest.param(with_members(token_type="bot"), INVALID, 1, marks=C26),
    pytest.param(with_members(token_type="DPoP"), INVALID, 1, marks=C27),
    pytest.param(with_members(scope="read write admin everything"), EXCEEDED, 1, marks=(C30, C58)),
    pytest.param(with_members(scope="READ"), EXCEEDED, 1, marks=C31),
    pytest.param(with_members(scope="read,write"), EXCEEDED, 1, marks=C31),
    pytest.param(with_members(scope='read "write"'), INVALID, 1, marks=C31),
    pytest.param(with_members(scope="r\u0435ad"), INVALID, 1, marks=C31),
    pytest.param(with_members(scope=["read", 7]), INVALID, 1, marks=C31),
    pytest.param(with_members(scope=" ".join(f"s{n}" for n in range(10_000))), INVALID, 1, marks=C31),
    pytest.param(forges(header={"alg": "none"}, key="cut"), Code.ID_TOKEN_INVALID, 1, marks=C32),
    pytest.param(forges(header={"alg": "HS256"}, key="secret"), Code.ID_TOKEN_INVALID, 1, marks=C32),
    pytest.param(forges(key="flipped"), Code.ID_TOKEN_INVALID, 1, marks=C32),
    pytest.param(forges(key="strange"), Code.ID_TOKEN_INVALID, 1, marks=C32),
    pytest.param(forges(claims={"exp": 1}), Code.ID_TOKEN_INVALID, 1, marks=C32),
]  # fmt: skip


@pytest.fixture(params=["token", "grant"])
async def mailed(
    request: pytest.FixtureRequest, identity_provider: IdentityProvider, test_clock: TestClock
) -> AsyncIterator[Harness]:
    """A harness whose provider revokes one token at a time, and one where revoking one ends all of a person's."""
    app = user_app(identity_provider, revocation=Revocation(reach=request.param))
    identity_provider.change("client-mail", revoke_reach="only" if request.param == "token" else "grant")
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        yield harness


async def connected(harness: Harness) -> Ready:
    return await harness.connected()


@pytest.mark.sample(40)
@pytest.mark.parametrize("spoil, code, revoked", JUNK)
async def test_a_bad_answer_is_refused_and_the_grant_lives_on(
    mailed: Harness, canaries: Canaries, spoil: Spoil, code: Code, revoked: int
) -> None:
    """The old token stays in use while it lives; then the code; then, with the next good answer, ready again. What came
    along is revoked where that harms nothing else, and a refresh token among it is kept: the old one may be spent."""
    harness, reach_is_narrow = mailed, mailed.broker.bundle.apps["mail"].revocation.reach == "token"
    first = await connected(harness)
    harness.clock.advance(LIFETIME)
    spoil(harness.idp, canaries.mint("provider text").reveal())
    reported = await harness.ask()
    assert isinstance(reported, Failed)
    assert (DOWN if code in UNUSABLE else code, 1) == (reported.code, failures(harness, code))
    assert (revoked if reach_is_narrow else 0) == harness.idp.count("revoke")
    grant = await harness.grant()
    assert grant is not None
    assert grant.token is not None
    assert (first.access_token, "") == (grant.token.access_token, grant.refresh_state.ended)
    harness.idp.script.reset()
    harness.clock.advance(PAUSE)
    assert isinstance(await harness.ask(), Ready)
    (family,) = harness.idp.families("client-mail")
    assert "" == family.ended_by


def failures(harness: Harness, code: Code) -> int:
    return harness.broker.metrics.value(Metric.REFRESH_FAILURES, code.value)


@pytest.mark.parametrize(
    "spoil", [row.values[0] for row in JUNK[::4]], ids=[str(number) for number in range(0, len(JUNK), 4)]
)
@pytest.mark.case("55")
async def test_a_token_that_still_lives_is_served_as_degraded_meanwhile(
    mailed: Harness, canaries: Canaries, spoil: Any
) -> None:
    harness = mailed
    first = await connected(harness)
    harness.clock.advance(LIFETIME - 200)
    spoil(harness.idp, canaries.mint("provider text").reveal())
    served = await harness.ask()
    assert isinstance(served, Ready)
    assert (first.access_token, first.expires_at, True) == (served.access_token, served.expires_at, served.degraded)


@pytest.mark.slow
@pytest.mark.case("23")
@pytest.mark.parametrize("late", ["never", "a byte at a time"])
async def test_a_late_answer_is_not_waited_for(
    identity_provider: IdentityProvider, test_clock: TestClock, late: str
) -> None:
    limits = Limits(provider_seconds=1.5)
    app = user_app(identity_provider)
    async with running(identity_provider, [app], clock=test_clock, limits=limits, background=False) as harness:
        await connected(harness)
        harness.clock.advance(LIFETIME)
        refresh = harness.idp.script.refresh
        if late == "never":
            refresh.hang()
        else:
            refresh.drip(5, body=b"x" * 500)
        reported = await harness.ask()
        assert isinstance(reported, Failed)
        assert DOWN is reported.code
        harness.idp.script.reset()
        harness.clock.advance(PAUSE)
        assert isinstance(await harness.ask(), Ready)


@pytest.mark.case("62")
@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"sub": "U666666"},
        {"aud": "client-of-another"},
        {"aud": ["client-mail", "client-of-another"]},
        {"azp": "client-of-another"},
    ],
    ids=["iss", "sub", "aud", "extra aud", "azp"],
)
async def test_an_id_token_of_another_account_quarantines_the_grant(mailed: Harness, claims: dict[str, Any]) -> None:
    """The token is told apart from ours, never handed out, and a person has to agree again."""
    harness = mailed
    await connected(harness)
    harness.clock.advance(LIFETIME - 200)
    harness.idp.script.refresh.alter_id_token(claims=claims)
    reported = await harness.ask()
    assert isinstance(reported, Failed)
    assert Code.SUBJECT_MISMATCH is reported.code
    grant = await harness.grant()
    assert grant is not None
    assert ("quarantined", None) == (grant.refresh_state.ended, grant.refresh_state.spare)
    again = await harness.ask()
    assert isinstance(again, AuthorizationRequired)
    assert ("revoked", 1) == (again.reason, harness.idp.count("refresh_token"))
    assert "quarantined" in harness.log.getvalue()


@pytest.mark.case("57")
@pytest.mark.parametrize("sent", [None, "", "same"])
async def test_the_old_refresh_token_is_kept_when_no_new_one_comes(mailed: Harness, sent: str | None) -> None:
    harness = mailed
    harness.idp.change("client-mail", rotate_refresh=False, repeat_refresh=sent == "same")
    await connected(harness)
    before = await harness.grant()
    for _ in range(3):
        harness.clock.advance(LIFETIME)
        if sent == "":
            harness.idp.script.refresh.fields(refresh_token="")
        assert isinstance(await harness.ask(), Ready)
    after = await harness.grant()
    assert before is not None
    assert after is not None
    assert before.token is not None
    assert after.token is not None
    assert before.token.refresh_token == after.token.refresh_token


@pytest.mark.case("29", "58")
@pytest.mark.parametrize(
    "scope, granted",
    [(GONE, ("read", "write", "admin")), ("read write", ("read", "write")), ("read", ("read",)), ("", ())],
    ids=["omitted", "shrunk", "shrunk to one", "shrunk to none"],
)
async def test_scopes_that_shrink_are_stored_and_omitted_ones_stay(
    mailed: Harness, scope: Any, granted: tuple[str, ...]
) -> None:
    harness = mailed
    await connected(harness)
    harness.clock.advance(LIFETIME)
    with_members(scope=scope)(harness.idp, "")
    harness.idp.script.refresh.alter_id_token(claims={})
    answer = await harness.ask(scopes=[])
    assert isinstance(answer, Ready)
    assert granted == answer.scopes
    wants_all = await harness.ask()
    if len(granted) == 3:
        assert isinstance(wants_all, Ready)
    else:
        assert isinstance(wants_all, AuthorizationRequired)
        assert "scopes" == wants_all.reason


async def test_an_answer_of_another_grant_is_recognised_by_its_owner(mailed: Harness) -> None:
    """The provider mixed two answers up: Bob's comes back to Alice's refresh."""
    harness = mailed
    await connected(harness)
    await harness.connected(account="bob", of=turn(user=BOB))
    answer_for_bob = harness.idp.token_responses("client-mail", "bob")[-1].document
    harness.clock.advance(LIFETIME)
    harness.idp.script.refresh.answer(200, answer_for_bob)
    reported = await harness.ask()
    assert isinstance(reported, Failed)
    assert reported.code in {Code.SUBJECT_MISMATCH, DOWN}
    assert 1 == failures(harness, Code.SUBJECT_MISMATCH) + failures(harness, Code.ID_TOKEN_INVALID)
    assert isinstance(await harness.ask(of=turn(user=BOB)), Ready)


async def test_the_token_of_last_time_is_refused_once_it_has_ended_unless_it_has_a_new_end(mailed: Harness) -> None:
    harness = mailed
    harness.idp.change("client-mail", rotate_refresh=False)
    await connected(harness)
    harness.clock.advance(LIFETIME)
    assert isinstance(await harness.ask(), Ready)
    last = dict(harness.idp.token_responses("client-mail", "alice")[-1].document)
    last.pop("id_token", None)
    harness.clock.advance(LIFETIME)
    harness.idp.script.refresh.answer(200, {**last, "expires_in": None})
    reported = await harness.ask()
    assert isinstance(reported, Failed)
    assert Code.TOKEN_UNCHANGED is reported.code
    harness.clock.advance(PAUSE)
    assert isinstance(await harness.ask(), Ready)


async def test_a_token_that_has_ended_on_arrival_is_no_answer_and_its_refresh_token_is_kept(mailed: Harness) -> None:
    harness = mailed
    await connected(harness)
    harness.clock.advance(LIFETIME)
    harness.idp.script.refresh.fields(expires_in=0)
    reported = await harness.ask()
    assert isinstance(reported, Failed)
    assert (DOWN, True, 1) == (reported.code, reported.retryable, failures(harness, INVALID))
    [line] = [it for it in map(json.loads, harness.log.getvalue().splitlines()) if it["event"].endswith("grant pause")]
    assert (INVALID.value, "the provider gives new tokens no lifetime") == (line["code"], line["note"])
    assert isinstance(await harness.ask(), Failed)
    assert 1 == harness.idp.count("refresh_token"), "or every call would cost a request"
    harness.clock.advance(PAUSE)
    assert isinstance(await harness.ask(), Ready)
    (family,) = harness.idp.families("client-mail")
    assert "" == family.ended_by


def by_answer(template: str) -> IdentityRule:
    return IdentityRule("tokenResponse", template)


@pytest.fixture(params=["user", "global"])
async def told_by_answer(
    request: pytest.FixtureRequest, identity_provider: IdentityProvider, test_clock: TestClock
) -> AsyncIterator[Harness]:
    """A provider without ID tokens, whose token answers say whose they are, as Slack's and Notion's do."""
    owner = Owner(
        global_identity=by_answer("idp:team:{team.id}"),
        user_identity=by_answer("idp:user:{who.id}"),
        authorizers="anyone",
    )
    plain = {"owner": owner, "habits": Habits(), "subject_mode": request.param}
    app = user_app(identity_provider, **plain)
    async with running(identity_provider, [app], clock=test_clock, background=False) as harness:
        harness.idp.script.token.fields(**WHO)
        yield harness


WHO: dict[str, Any] = {"who": {"id": "U234567"}, "team": {"id": "T111"}, "id_token": None}


@pytest.mark.case("62")
@pytest.mark.parametrize(
    "says, same",
    [
        (WHO, True),
        ({"id_token": None}, True),
        ({**WHO, "who": {"id": "U666666"}, "team": {"id": "T666"}}, False),
    ],
    ids=["the same", "nothing", "another account"],
)
async def test_what_a_token_answer_says_of_its_owner_must_be_what_the_grant_was_made_for(
    told_by_answer: Harness, says: dict[str, Any], same: bool
) -> None:
    """The answer of another grant, where no ID token could tell."""
    harness = told_by_answer
    await harness.connected()
    harness.clock.advance(LIFETIME - 200)
    harness.idp.script.refresh.fields(**says)
    reported = await harness.ask()
    if same:
        assert isinstance(reported, Ready)
        assert not reported.degraded
        return
    assert isinstance(reported, Failed)
    assert Code.SUBJECT_MISMATCH is reported.code
    assert "revoked" == (await harness.ask_link()).reason
