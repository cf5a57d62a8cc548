"""Microsoft's claims challenge: the claims that an API demands go into the next authorization, once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from oauthbroker import AuthorizationRequiredError
from oauthbroker.config import load
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.callback_pages import assert_error_page
from tests.kit.claims import CLAIMS, challenge, challenged, claims_asked_for, encoded, refusing, reported
from tests.kit.docs import code_blocks
from tests.kit.running_broker import Harness, running, scopes_last_asked_for, turn, user_app
from tests.unit.protocol.kit import RawServer, raw_answer

CAPABLE: dict[str, Any] = {"access_token": {"xms_cc": {"values": ["cp1"]}}}


@dataclass
class Stage:
    """A tool with an injected client for an API that gives `answers`, the last one again and again."""

    harness: Harness
    api: RawServer

    async def get(self) -> httpx2.Response:
        async with self.harness.broker.oauth(turn(), "Tool/carried").client("mail", library=httpx2) as client:
            answer: httpx2.Response = await client.get(f"http://127.0.0.1:{self.api.port}/me")
            return answer


@asynccontextmanager
async def stage(idp: IdentityProvider, clock: TestClock, *answers: bytes) -> AsyncIterator[Stage]:
    left = list(answers)

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()

    async with RawServer(handle) as api:
        app = user_app(idp, api=ApiAccess((ApiHost("127.0.0.1", api.port, "http"),), ("GET",)))
        tools = {"Tool/carried": (ToolAuth("mail", injected=True),)}
        async with running(idp, [app], clock=clock, tools=tools, background=False) as harness:
            await harness.connected()
            yield Stage(harness, api)


async def link_of(here: Stage) -> AuthorizationRequired:
    with pytest.raises(AuthorizationRequiredError) as asked:
        await here.get()
    return asked.value.result


async def test_the_injected_client_notices_the_challenge_and_the_next_authorization_has_its_claims(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    """No refresh comes first: it would bring the claims of before. The link after the next one has none."""
    async with stage(identity_provider, test_clock, refusing(), raw_answer(200, b'{"a": 1}')) as here:
        asked = await link_of(here)
        assert "expired" == asked.reason
        assert 0 == identity_provider.count("refresh_token")
        assert 200 == (await here.harness.connect(asked)).status
        assert {"a": 1} == (await here.get()).json()
        first, second = here.api.requests
        assert first != second, "another token"
        session = await here.harness.session(asked)
        assert ("completed", "") == (session.status, session.claims)
        await here.harness.connect(await here.harness.ask(switch_account=True))
    assert [None, CLAIMS, None] == claims_asked_for(identity_provider)


async def test_the_sync_client_notices_it_too(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    async with stage(identity_provider, test_clock, refusing()) as here:
        oauth = here.harness.broker.oauth(turn(), "Tool/carried").sync

        def fetched() -> Any:
            with oauth.client("mail", library=httpx2) as client:
                return client.get(f"http://127.0.0.1:{here.api.port}/me")

        with pytest.raises(AuthorizationRequiredError) as asked:
            await asyncio.to_thread(fetched)
        assert 200 == (await here.harness.connect(asked.value.result)).status
        assert 1 == len(here.api.requests)
    assert [None, CLAIMS] == claims_asked_for(identity_provider)


async def test_a_challenge_asks_for_no_other_scope_and_no_other_person(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    body = raw_answer(401, b"{}", www_authenticate=f'{challenge(encoded())}, scope="read everything"')
    async with stage(identity_provider, test_clock, body) as here:
        before = await here.harness.grant()
        asked = await link_of(here)
        assert_error_page(await here.harness.connect(asked, "bob"), Code.SUBJECT_MISMATCH)
        assert (await here.harness.session(asked)).failure is Code.SUBJECT_MISMATCH
        assert before == await here.harness.grant()
    assert "everything" not in scopes_last_asked_for(here.harness)


PAGES_APP = """apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {name: mail}
spec:
  provider: microsoft
  params: {tenant: common}
  flow: authorizationCode
  subjectMode: user
  client: {clientId: agents, clientSecret: {valueFrom: {env: SECRET}}}
  scopes: [read, write]
"""


def capable(idp: IdentityProvider, folder: Path) -> App:
    """An app at the scripted provider with what the page's app of Microsoft's preset says in its requests."""
    [options] = [block for block in code_blocks("docs/injection.md", "yaml") if "xms_cc" in block]
    (folder / "app.yaml").write_text(PAGES_APP + options)
    [draft] = load(folder / "app.yaml").apps.values()
    said = draft.app.habits
    requests = {name: getattr(said, name) for name in ("authorize_params", "token_params", "refresh_params")}
    return user_app(idp, habits=Habits(always_scopes=("openid",), refresh_scope=said.refresh_scope, **requests))


async def test_the_pages_app_declares_its_capability_in_each_request_with_demanded_claims_beside_it(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    """Each refresh names the scopes, too."""
    async with running(identity_provider, [capable(identity_provider, tmp_path)], clock=test_clock) as harness:
        await harness.connected()
        asked = await challenged(harness)
        assert (await challenged(harness)).auth_session_id == asked.auth_session_id, "one link for the same claims"
        await harness.connect(asked)
        assert isinstance(await reported(harness, None), Ready)
    both = {"access_token": {**CLAIMS["access_token"], **CAPABLE["access_token"]}}
    assert [CAPABLE, both] == claims_asked_for(identity_provider)
    [refresh] = identity_provider.seen("refresh_token")
    assert "openid read write admin" == refresh.form["scope"]
    for seen in (*identity_provider.seen("authorization_code"), refresh):
        assert CAPABLE == json.loads(str(seen.form["claims"]))


@pytest.mark.parametrize(
    "claims", ["", "no base64", encoded({"id_token": {}}), 7, encoded({"access_token": {"x": "y" * 4096}})]
)
async def test_a_report_with_other_claims_is_refused(
    identity_provider: IdentityProvider, test_clock: TestClock, claims: Any
) -> None:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock) as harness:
        await harness.connected()
        refused = await reported(harness, claims)
        assert isinstance(refused, Failed)
        assert Code.REQUEST_INVALID is refused.code
        assert 0 == harness.idp.count("refresh_token")


async def test_a_challenge_to_a_token_that_was_replaced_meanwhile_asks_no_user(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock) as harness:
        old = await harness.connected()
        await harness.connect(await reported(harness, encoded()))
        answer = await harness.broker.oauth(turn()).report_rejected("mail", old.access_token, claims=encoded())
        assert isinstance(answer, Ready)
        assert answer.access_token.reveal() != old.access_token.reveal()


@pytest.mark.parametrize("seconds", [3600 - 30, 3600 + 30])
async def test_a_challenge_to_a_token_at_its_end_is_not_answered_by_a_refresh(
    identity_provider: IdentityProvider, test_clock: TestClock, seconds: int
) -> None:
    """Such a token is due for a refresh, which would bring the claims of before."""
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, background=False) as harness:
        ready = await harness.connected()
        test_clock.advance(seconds)
        asked = await harness.broker.oauth(turn()).report_rejected("mail", ready.access_token, claims=encoded())
        assert isinstance(asked, AuthorizationRequired)
        assert 0 == harness.idp.count("refresh_token")
        assert isinstance(await harness.ask(), Ready), "the others go on, with a refresh"
