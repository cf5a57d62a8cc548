"""12.5.7: the device code flow. An app that cannot have it is refused where it is configured, not where it is used; one
that can has it by the same principles as the other flow."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.config import load
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.local_turn import local_turn
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, Harness, device_app, running, turn, user_app
from tests.unit.config.bundles import APP, BROKER, GLOBAL, edited, problems_in, write

FLOW = ("flow: authorizationCode", "flow: deviceCode")
ENDPOINT = ("  endpoints:\n", "  endpoints:\n    deviceAuthorizationUrl: https://acme.example/device\n")
DISCOVERED = ("  endpoints:\n", "  endpoints:\n    issuer: https://acme.example\n")
LOCAL = edited(BROKER, ("https://broker.example", "http://127.0.0.1:8420"))
SOURCE, TEMPLATE = ("from: tokenResponse, ", ""), (', template: "acme:user:{user.id}"', "")
OWNER = ('  owner:\n    identity:\n      user: {from: tokenResponse, template: "acme:user:{user.id}"}\n', "")
NOBODY = ('identity:\n      user: {from: tokenResponse, template: "acme:user:{user.id}"}', "binding: localOperator")


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    """The same app twice: once with the flow that has a browser, once with a code."""
    apps = [user_app(identity_provider), device_app(identity_provider)]
    async with running(identity_provider, apps, clock=test_clock) as harness:
        yield harness


@pytest.mark.rule("12.5.7")
@pytest.mark.case("95")
@pytest.mark.parametrize(
    "bundle", [edited(APP, FLOW), edited(GLOBAL, FLOW)], ids=["an app without an endpoint", "a preset without one"]
)
def test_must_an_app_that_cannot_have_the_flow_does_not_load(bundle: str, tmp_path: Path) -> None:
    """The refusal names the field and says what to write."""
    [problem] = problems_in(write(tmp_path / "b", app=bundle))
    assert (Code.DEVICE_CODE_UNSUPPORTED, "spec.flow") == (problem.code, problem.path)
    assert "deviceAuthorizationUrl" in problem.hint
    assert "authorizationCode" in problem.hint


@pytest.mark.rule("12.5.7")
@pytest.mark.case("95")
def test_must_an_app_whose_owner_is_not_checked_does_not_load(tmp_path: Path) -> None:
    """A code is typed in a browser that we never see: only the account that comes back tells who did it, or the code is
    shown to the person at this machine alone (`localOperator`, on loopback)."""
    local = edited(APP, NOBODY, FLOW, ENDPOINT)
    assert "localOperator" == load(write(tmp_path / "a", app=local, broker=LOCAL)).apps["acme"].app.owner.binding
    [problem] = problems_in(write(tmp_path / "b", app=local, broker=BROKER))
    assert "spec.owner.binding" == problem.path
    assert "away from loopback" in problem.what


@pytest.mark.rule("12.5.7")
async def test_must_a_code_whose_account_is_not_compared_is_not_shown_in_a_conversation(
    identity_provider: IdentityProvider,
) -> None:
    """Its other readers could type it. Only the turn of the person at this machine gets one."""
    owner = Owner(binding="localOperator", user_identity=IdentityRule("idToken", "idp:user:{sub}"))
    app = device_app(identity_provider, owner=owner)
    async with running(identity_provider, [app]) as harness:
        refused = await harness.ask("tv")
        assert isinstance(refused, Failed), refused
        assert Code.DEVICE_CODE_UNSUPPORTED is refused.code
        own = await harness.ask("tv", of=local_turn())
        assert isinstance(own, AuthorizationRequired), own


@pytest.mark.rule("12.5.7")
@pytest.mark.case("95")
@pytest.mark.parametrize("binding", ["runtimeConfirm", "channelCode"])
@pytest.mark.parametrize("shared", [False, True])
def test_must_an_app_whose_binding_needs_a_browser_does_not_load(binding: str, shared: bool, tmp_path: Path) -> None:
    """Nor in global mode, where the account could be compared: no person would ever be asked."""
    said = f"binding: {binding}" + (", confirmUrl: https://acme.example/me" if binding == "runtimeConfirm" else "")
    if shared:
        owner = ("  owner: {", f"  owner: {{{said}, ")
        ends = ENDPOINT[1].strip().replace("acme.example", "slack.com")
        bundle = edited(GLOBAL, FLOW, owner, ("  scopes:", f"  {ends}\n  scopes:"))
    else:
        bundle = edited(APP, FLOW, ENDPOINT, ("  owner:\n", "  owner:\n    " + said.replace(", ", "\n    ") + "\n"))
    [problem] = problems_in(write(tmp_path / "b", app=bundle))
    assert (Code.DEVICE_CODE_UNSUPPORTED, "spec.owner.binding") == (problem.code, problem.path)
    assert "no browser comes back" in problem.what


@pytest.mark.rule("12.5.7")
@pytest.mark.case("95")
@pytest.mark.parametrize(
    "change, missing",
    [(SOURCE, "from"), (TEMPLATE, "template"), (OWNER, "from")],
    ids=["no source", "no template", "no owner at all"],
)
def test_must_an_app_whose_owner_cannot_be_known_does_not_load(
    change: tuple[str, str], missing: str, tmp_path: Path
) -> None:
    """The same mistake with a browser is a mistake like any other."""
    [problem] = problems_in(write(tmp_path / "a", app=edited(APP, change, FLOW, ENDPOINT)))
    assert (Code.DEVICE_CODE_UNSUPPORTED, f"spec.owner.identity.user.{missing}") == (problem.code, problem.path)
    assert problem.what.startswith("deviceCodeUnsupported: nothing tells whose account comes back")
    [problem] = problems_in(write(tmp_path / "b", app=edited(APP, change)))
    assert (Code.CONFIG_INVALID, "nothing tells whose account comes back") == (problem.code, problem.what)


@pytest.mark.rule("12.5.7")
def test_must_one_such_app_keeps_the_whole_bundle_out(tmp_path: Path) -> None:
    """Loading is all or nothing: the good app beside it is not taken either."""
    bad = edited(APP, FLOW, ("name: acme", "name: tv"), ("/oauth/callback/acme", "/oauth/callback/tv"))
    problems = problems_in(write(tmp_path / "b", app=APP, tv=bad))
    assert {Code.DEVICE_CODE_UNSUPPORTED} == {problem.code for problem in problems}
    assert all(problem.file.endswith("tv.yaml") for problem in problems)


@pytest.mark.rule("12.5.7")
@pytest.mark.parametrize(
    "bundle",
    [edited(APP, FLOW, ENDPOINT), edited(APP, FLOW, DISCOVERED)],
    ids=["its endpoint is named", "its issuer's discovery will name it"],
)
def test_may_an_app_that_can_have_the_flow_loads(bundle: str, tmp_path: Path) -> None:
    loaded = load(write(tmp_path / "b", app=bundle))
    assert "deviceCode" == loaded.apps["acme"].app.flow


@pytest.mark.rule("12.5.7")
async def test_should_the_answer_has_the_address_and_the_code(harness: Harness) -> None:
    answer: dict[str, Any] = await harness.broker.oauth(turn()).getAccessToken({"oauthAppRef": "OAuthApp/tv"})
    assert "authorization_required" == answer["status"]
    assert harness.idp.url("/device") == answer["deviceCode"]["verificationUri"]
    assert harness.idp.user_codes == [answer["deviceCode"]["userCode"]]
    other = await harness.broker.oauth(turn()).getAccessToken({"oauthAppRef": "OAuthApp/mail"})
    assert set(answer) - set(other) == {"deviceCode"}


@pytest.mark.rule("12.5.7", "12.5.4", "12.5.6-6")
async def test_should_the_grant_is_stored_as_the_other_flows_is(harness: Harness) -> None:
    """The same record, the same checks on the way; only the word for the flow differs."""
    grants = {}
    for app in ("mail", "tv"):
        asked = await harness.ask_link(app)
        await _agree(harness, asked)
        grant = await harness.grant(app)
        assert grant is not None
        grants[app] = json.loads(grant.to_plaintext())
    assert ("authorization_code", "device_code") == tuple(grants[app]["spec"]["flow"] for app in ("mail", "tv"))
    assert grants["mail"]["spec"].keys() == grants["tv"]["spec"].keys()
    assert grants["mail"]["status"]["account"] == grants["tv"]["status"]["account"]
    assert {ALICE} == {grants[app]["spec"]["subject"] for app in grants}


@pytest.mark.rule("12.5.7", "12.5.6-7")
async def test_should_the_agent_is_resumed_as_in_the_other_flow(harness: Harness) -> None:
    events = {}
    for app in ("mail", "tv"):
        await _agree(harness, await harness.ask_link(app))
        events[app] = await harness.event()
        assert isinstance(await harness.ask(app), Ready)
    mail, tv = events["mail"], events["tv"]
    assert mail is not None
    assert tv is not None
    same = ("type", "swarmRef", "instanceKey", "agentName", "origin", "auth")
    assert [mail[word] for word in same] == [tv[word] for word in same]
    assert mail["payload"].keys() == tv["payload"].keys()


@pytest.mark.rule("12.5.7", "12.5.5", "12.5.3-1")
async def test_the_session_keeps_the_device_code_until_it_ends_and_no_longer(harness: Harness) -> None:
    asked = await harness.ask_link("tv")
    flow = json.loads((await harness.session(asked)).to_plaintext())["spec"]["flow"]
    assert ("device_code", harness.idp.user_codes[0]) == (flow["type"], flow["userCode"])
    assert flow["deviceCode"]
    await _agree(harness, asked)
    assert json.loads((await harness.session(asked)).to_plaintext())["spec"]["flow"]["deviceCode"] is None


async def _agree(harness: Harness, asked: AuthorizationRequired) -> None:
    if asked.device_code is None:
        assert 200 == (await harness.connect(asked)).status
        return
    harness.idp.device_approve(asked.device_code.user_code)
    harness.clock.advance(asked.device_code.interval)
    assert "completed" == (await _end(harness, asked)).status


async def _end(harness: Harness, asked: AuthorizationRequired) -> Any:
    """The poller runs by itself, in real time; the broker's clock stands still."""
    for _ in range(10_000):
        found = await harness.broker.wait(asked.auth_session_id, timeout=0)
        if found.status != "pending":
            return found
        await harness.clock.sleep(0.001)
    raise AssertionError("nothing came of it")
