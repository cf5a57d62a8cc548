"""The exchange end to end (cases 18-36): what a token endpoint can do wrong, and that nothing of it stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

import pytest

from oauthbroker.audit import TokensDropped
from oauthbroker.core.errors import Code
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.kit.callback_pages import assert_error_page, assert_leads_to_connected
from tests.kit.running_broker import ALICE, BOB, Harness, running, turn, user_app
from tests.story.bad_token_answers import GONE, Spoil, Spoiling

Reach = Literal["token", "grant"]
SPOILING = Spoiling("token")
answers, with_members, forges = SPOILING.answers, SPOILING.with_members, SPOILING.forges

C18 = pytest.mark.case("18")
C19 = pytest.mark.case("19")
C20 = pytest.mark.case("20")
C21 = pytest.mark.case("21")
C23 = pytest.mark.case("23")
C24 = pytest.mark.case("24")
C25 = pytest.mark.case("25")
C26 = pytest.mark.case("26")
C27 = pytest.mark.case("27")
C28 = pytest.mark.case("28")
C30 = pytest.mark.case("30")
C31 = pytest.mark.case("31")
C32 = pytest.mark.case("32")
C40 = pytest.mark.case("40")

INVALID, FAILED, UNCERTAIN = Code.TOKEN_RESPONSE_INVALID, Code.EXCHANGE_FAILED, Code.EXCHANGE_UNCERTAIN
TOKENS = {"access_token": "CANARY", "token_type": "bearer"}
TABLE = [
    pytest.param(answers(400, {"error": "invalid_grant", "error_description": "CANARY"}), FAILED, 0, marks=C18),
    pytest.param(answers(400, {"error": "CANARY"}), FAILED, 0, marks=C18),
    pytest.param(answers(200, {"ok": False}), INVALID, 0, marks=C19),
    pytest.param(answers(200, {"ok": False, **TOKENS}), INVALID, 1, marks=C19),
    pytest.param(answers(200, {"error": None, **TOKENS}), INVALID, 1, marks=C19),
    pytest.param(answers(200, {"error": "invalid_grant", **TOKENS}), FAILED, 1, marks=C19),
    pytest.param(answers(400, TOKENS), INVALID, 1, marks=C19),
    pytest.param(answers(200, {}), INVALID, 0, marks=C19),
    pytest.param(answers(401, b""), Code.APP_MISCONFIGURED, 0, marks=C19),
    pytest.param(answers(500, "CANARY"), Code.PROVIDER_UNREACHABLE, 0, marks=C19),
    pytest.param(answers(429, "CANARY"), Code.PROVIDER_RATE_LIMITED, 0, marks=C19),
    pytest.param(answers(200, "<html>CANARY</html>"), INVALID, 0, marks=C20),
    pytest.param(answers(200, ["CANARY"]), INVALID, 0, marks=C20),
    pytest.param(answers(200, '{"access_token": "CANARY", "token_ty'), INVALID, 0, marks=C20),
    pytest.param(answers(200, '{"access_token": "CANARY", "token_type": "bearer", "expires_in": NaN}'), INVALID, 1, marks=C20),
    pytest.param(answers(200, b"[" * 100_000), INVALID, 0, marks=C20),
    pytest.param(answers(200, '{"access_token": "a", "access_token": "CANARY", "token_type": "bearer"}'), INVALID, 2, marks=C20),
    pytest.param(lambda idp, canary: idp.script.token.endless(), UNCERTAIN, 0, marks=C24),
    pytest.param(lambda idp, canary: idp.script.token.gzip_bomb(30), UNCERTAIN, 0, marks=C24),
    pytest.param(lambda idp, canary: idp.script.token.close_after_accept(after_work=True), UNCERTAIN, 0, marks=C23),
    pytest.param(with_members(access_token=GONE), INVALID, 1, marks=C25),
    pytest.param(with_members(access_token=""), INVALID, 1, marks=C25),
    pytest.param(with_members(access_token=1234567), INVALID, 1, marks=C25),
    pytest.param(with_members(access_token="a\r\nX-Evil: 1"), INVALID, 1, marks=C25),
    pytest.param(with_members(access_token="t\u00f6ken"), INVALID, 1, marks=C25),
    pytest.param(with_members(token_type=GONE), INVALID, 2, marks=C26),
    pytest.param(with_members(token_type="mac"), INVALID, 2, marks=C26),
    pytest.param(with_members(token_type="bot"), INVALID, 2, marks=C26),
    pytest.param(with_members(token_type="DPoP"), INVALID, 2, marks=C27),
    pytest.param(with_members(scope="read write admin everything"), Code.SCOPE_EXCEEDED, 2, marks=C30),
    pytest.param(with_members(scope="READ"), Code.SCOPE_EXCEEDED, 2, marks=(C30, C31)),
    pytest.param(with_members(scope="read,write"), Code.SCOPE_EXCEEDED, 2, marks=C31),
    pytest.param(with_members(scope='read "write"'), INVALID, 2, marks=C31),
    pytest.param(with_members(scope="r\u0435ad"), INVALID, 2, marks=C31),
    pytest.param(with_members(scope=["read", 7]), INVALID, 2, marks=C31),
    pytest.param(with_members(scope=" ".join(f"s{n}" for n in range(10_000))), INVALID, 2, marks=C31),
    pytest.param(forges(header={"alg": "none"}, key="cut"), Code.ID_TOKEN_INVALID, 2, marks=C32),
    pytest.param(forges(header={"alg": "HS256"}, key="secret"), Code.ID_TOKEN_INVALID, 2, marks=C32),
    pytest.param(forges(header={"alg": "HS256"}, key="public"), Code.ID_TOKEN_INVALID, 2, marks=C32),
    pytest.param(forges(key="flipped"), Code.ID_TOKEN_INVALID, 2, marks=C32),
    pytest.param(forges(key="strange"), Code.ID_TOKEN_INVALID, 2, marks=C32),
    pytest.param(forges(claims={"aud": "client-of-another"}), Code.ID_TOKEN_INVALID, 2, marks=C32),
    pytest.param(forges(claims={"iss": "https://evil.example"}), Code.ID_TOKEN_INVALID, 2, marks=C32),
    pytest.param(forges(claims={"nonce": "another"}), Code.ID_TOKEN_INVALID, 2, marks=C32),
    pytest.param(forges(claims={"nonce": None}), Code.ID_TOKEN_INVALID, 2, marks=C32),
    pytest.param(forges(claims={"exp": 1}), Code.ID_TOKEN_INVALID, 2, marks=C32),
    pytest.param(forges(claims={"sub": None}), Code.ID_TOKEN_INVALID, 2, marks=C32),
    pytest.param(with_members(id_token=GONE), Code.SUBJECT_UNVERIFIABLE, 2, marks=(C32, C40)),
]  # fmt: skip


@pytest.fixture(params=["token", "grant"])
async def mailed(
    request: pytest.FixtureRequest, identity_provider: IdentityProvider, test_clock: TestClock
) -> AsyncIterator[Harness]:
    """A harness whose provider revokes one token at a time, and one where revoking one ends all of a person's."""
    app = user_app(identity_provider, revocation=Revocation(reach=request.param))
    async with running(identity_provider, [app], clock=test_clock) as harness:
        yield harness


@pytest.mark.sample(20)
@pytest.mark.parametrize("spoil, code, dropped", TABLE)
async def test_a_bad_answer_ends_the_session_and_stores_nothing(
    mailed: Harness, canaries: Canaries, spoil: Spoil, code: Code, dropped: int
) -> None:
    """The code on page, session, event and audit; no retry; tokens in the answer are revoked where that harms no other grant."""
    harness = mailed
    spoil(harness.idp, canaries.mint("provider text").reveal())
    asked = await harness.ask_link()
    assert_error_page(await harness.connect(asked), code)
    session = await harness.session(asked)
    assert ("failed", code, None, None) == (session.status, session.failure, session.ticket, session.attempt.verifier)
    assert (1, None) == (harness.idp.count("token"), await harness.grant())
    (event,) = await harness.events()
    assert ("auth.failed", code.value) == (event["type"], event["payload"]["code"])
    assert (await harness.broker.wait(asked.auth_session_id, 0)).code is code
    is_harmless = code is Code.SCOPE_EXCEEDED or harness.broker.bundle.apps["mail"].revocation.reach == "token"
    assert (dropped if is_harmless else 0) == harness.idp.count("revoke")
    notes = [entry for entry in harness.audit.entries if isinstance(entry, TokensDropped)]
    expected = (
        [TokensDropped(app="mail", session=asked.auth_session_id, code=code.value, revoked=is_harmless)]
        if dropped
        else []
    )
    assert expected == notes
    harness.idp.script.reset()
    await harness.connected()


@pytest.mark.case("18")
async def test_a_code_of_another_session_is_refused_by_its_verifier(harness: Harness) -> None:
    """Both have their cookie and their state; only PKCE tells that the codes were swapped."""
    hers, his = await harness.ask_link(), await harness.ask_link(of=turn(user=BOB))
    alice, bob = harness.browser(), harness.browser()
    hers_back = await harness.way_back(hers, alice)
    his_back = await harness.way_back(his, bob, "bob")
    code, other = (dict(parse_qsl(urlsplit(url).query))["code"] for url in (hers_back, his_back))
    assert_error_page(await alice.follow(hers_back.replace(code, other)), Code.EXCHANGE_FAILED)
    assert 1 == harness.idp.count("token")
    assert Code.EXCHANGE_FAILED is (await harness.session(hers)).failure
    assert_leads_to_connected(await bob.follow(his_back))
    assert await harness.grant(subject=ALICE) is None
    assert await harness.grant(subject=BOB) is not None


@pytest.mark.case("18")
@pytest.mark.rule("12.5.6-1")
@pytest.mark.parametrize("app", ["mail", "team"])
async def test_every_authorization_url_carries_a_challenge_and_every_exchange_a_verifier(
    harness: Harness, app: str
) -> None:
    await harness.connected(app)
    (sent,) = [seen.form for seen in harness.idp.seen("authorize") if "code_challenge" in seen.form]
    assert ("S256", 43) == (sent["code_challenge_method"], len(str(sent["code_challenge"])))
    (exchange,) = harness.idp.seen("authorization_code")
    assert exchange.has_code_verifier


@pytest.mark.case("22")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_of_the_token_endpoint_is_never_followed(
    harness: Harness, canaries: Canaries, status: int
) -> None:
    """Neither code nor secret reach the other address."""
    with IdentityProvider(canaries=canaries) as elsewhere:
        harness.idp.script.token.redirect(elsewhere.url("/token"), status)
        asked = await harness.ask_link()
        assert_error_page(await harness.connect(asked), INVALID)
        assert [] == elsewhere.requests
    assert (1, None) == (harness.idp.count("token"), await harness.grant())


@pytest.mark.case("22")
@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest/meta-data", "http://127.0.0.1:1/", "file:///etc/passwd"]
)
async def test_nor_to_an_address_within(harness: Harness, target: str) -> None:
    harness.idp.script.token.redirect(target, 307)
    assert_error_page(await harness.connect(await harness.ask_link()), INVALID)
