"""An answer that breaks its check (cases 19-34): the session ends, the tokens that came are let go of, and a refresh
token that came along is kept like one of any other answer that is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oauthbroker.core.errors import Code
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.observability.metrics import Metric
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.kit.broker_process import outcome
from tests.kit.callback_pages import assert_error_page
from tests.kit.forms import examples
from tests.kit.running_broker import Harness, global_app, running, user_app
from tests.story.client_credentials_kit import machine_app, machine_failed, machine_ready
from tests.story.device_kit import ask_for_code, events, prompt_of, world
from tests.story.refresh_kit import LIFETIME, PAUSE

INVALID = Code.TOKEN_RESPONSE_INVALID
FORMS = ("seconds", "milliseconds", "epochSeconds", "epochMilliseconds", "iso", "none")
Break = Callable[[str], None]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, canaries: Canaries) -> Break:
    """Makes a function crash, as one does on a value that its author did not think of. The text of the exception is the
    provider's, so that it must turn up nowhere."""
    text = canaries.mint("text of a crash").reveal()

    def crash(*_: Any, **__: Any) -> NoReturn:
        raise OverflowError(text)

    return lambda place: monkeypatch.setattr(f"oauthbroker.{place}", crash)


@pytest.mark.case("28")
@pytest.mark.parametrize(
    "place, dropped",
    [
        ("protocol.token_endpoint.body_members", 2),
        ("protocol.token_endpoint.token_members", 2),
        ("protocol.token_endpoint.lifetime_of", 2),
        ("protocol.token_endpoint.scopes_of", 2),
        ("protocol.token_endpoint.facts_of", 2),
        ("protocol.identity.read_id_token", 2),
        ("protocol.identity.verify_id_token", 2),
        ("protocol.identity.render", 2),
        ("authorization.finish.check_owner", 2),
        ("authorization.finish.granted_scopes", 2),
    ],
)
async def test_a_code_s_answer_that_breaks_its_validator_ends_the_session(
    harness: Harness, broken: Break, place: str, dropped: int
) -> None:
    asked = await harness.ask_link()
    broken(place)
    assert_error_page(await harness.connect(asked), INVALID)
    session = await harness.session(asked)
    assert ("failed", INVALID, None) == (session.status, session.failure, session.ticket)
    assert (dropped, None) == (harness.idp.count("revoke"), await harness.grant())
    (event,) = await harness.events()
    assert ("auth.failed", INVALID.value) == (event["type"], event["payload"]["code"])


@pytest.mark.case("28")
@pytest.mark.parametrize("place", ["protocol.identity.userinfo_response", "protocol.identity.lookup"])
async def test_facts_about_a_person_that_break_their_validator_end_the_session(
    harness: Harness, broken: Break, place: str
) -> None:
    asked = await harness.ask_link("team")
    broken(place)
    assert_error_page(await harness.connect(asked), INVALID)
    assert "failed" == (await harness.session(asked)).status
    assert 2 == harness.idp.count("revoke")


@pytest.mark.case("28")
@pytest.mark.parametrize(
    "place",
    [
        "protocol.token_endpoint.body_members",
        "protocol.token_endpoint.lifetime_of",
        "protocol.token_endpoint.facts_of",
        "protocol.identity.verify_id_token",
        "protocol.refresh_call.check_same_owner",
        "protocol.refresh_call.granted_scopes",
    ],
)
async def test_a_refresh_s_answer_that_breaks_its_validator_keeps_the_new_refresh_token(
    identity_provider: IdentityProvider,
    test_clock: TestClock,
    monkeypatch: pytest.MonkeyPatch,
    broken: Break,
    place: str,
) -> None:
    """It is the only one that lives: the old one is spent, and sending it again would end the whole family."""
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, background=False) as harness:
        first = await harness.connected()
        harness.clock.advance(LIFETIME)
        broken(place)
        reported = await harness.ask()
        assert isinstance(reported, Failed)
        assert Code.PROVIDER_UNREACHABLE is reported.code
        assert 1 == harness.broker.metrics.value(Metric.REFRESH_FAILURES, INVALID.value)
        grant = await harness.grant()
        assert grant is not None
        assert grant.token is not None
        assert (first.access_token, None) == (grant.token.access_token, grant.refresh_state.intent)
        assert grant.refresh_state.spare is not None
        assert grant.refresh_state.spare != grant.token.refresh_token
        monkeypatch.undo()
        harness.clock.advance(PAUSE)
        assert isinstance(await harness.ask(), Ready)
        (family,) = harness.idp.families("client-mail")
        assert "" == family.ended_by


@pytest.mark.case("28")
@pytest.mark.parametrize(
    "place", ["protocol.token_endpoint.lifetime_of", "protocol.identity.render", "authorization.finish.granted_scopes"]
)
async def test_a_device_code_s_answer_that_breaks_its_validator_ends_the_session(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, broken: Break, place: str
) -> None:
    here = world(identity_provider, test_clock, tmp_path)
    broker = here.start()
    asked = await ask_for_code(broker)
    prompt = prompt_of(asked)
    await here.idp.device_agree(prompt.verification_uri, prompt.user_code)
    broken(place)
    await here.poll()
    assert ("failed", INVALID) == await outcome(broker, asked)
    assert ["auth.failed"] == await events(broker)
    assert 2 == here.idp.count("revoke")


@pytest.mark.case("28")
async def test_a_client_s_own_token_that_breaks_its_validator_is_an_error_and_fetched_again_later(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch, broken: Break
) -> None:
    async with running(identity_provider, [machine_app(identity_provider)], clock=test_clock) as harness:
        broken("protocol.token_endpoint.lifetime_of")
        assert Code.PROVIDER_UNREACHABLE is (await machine_failed(harness)).code
        assert 1 == harness.broker.metrics.value(Metric.REFRESH_FAILURES, INVALID.value)
        monkeypatch.undo()
        harness.clock.advance(PAUSE)
        assert identity_provider.is_alive((await machine_ready(harness)).access_token)


NUMBERS = st.sampled_from([0, -1, 1.5, 2**63, 10**400, -(10**400), 1e308, -1e308])
ODD = st.one_of(
    st.none(), st.booleans(), NUMBERS, st.text(max_size=5), st.lists(NUMBERS, max_size=2), st.just({"id": {}})
)
MEMBERS = st.dictionaries(
    st.sampled_from(["expires_in", "scope", "token_type", "refresh_token", "id_token", "error", "ok", "team"]), ODD, max_size=3
)  # fmt: skip


async def _connects_or_ends(idp: IdentityProvider, form: str, members: dict[str, Any], facts: dict[str, Any]) -> None:
    habits = Habits(always_scopes=("openid",), lifetime_form=form, keeps=("team", "expires_in"))  # type: ignore[arg-type]
    apps = [user_app(idp, habits=habits), global_app(idp, habits=habits)]
    async with running(idp, apps, background=False) as harness:
        for app in ("mail", "team"):
            asked = await harness.ask_link(app)
            idp.script.token.alter(lambda honest: {**honest, **members})
            idp.script.userinfo.alter(lambda honest: {**honest, **facts})
            page = await harness.connect(asked)
            session = await harness.session(asked)
            assert ("completed" if page.status == 200 else "failed") == session.status
            assert page.status < 500 or session.failure is not None
            idp.script.reset()


@pytest.mark.slow
@pytest.mark.case("28")
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(FORMS), MEMBERS, st.dictionaries(st.sampled_from(["sub", "team", "error"]), ODD, max_size=2))
def test_no_answer_of_a_provider_leaves_a_session_claimed(
    identity_provider: IdentityProvider, form: str, members: dict[str, Any], facts: dict[str, Any]
) -> None:
    asyncio.run(_connects_or_ends(identity_provider, form, members, facts))
