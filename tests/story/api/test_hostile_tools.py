"""A tool that was talked into it: what its token does not do to the person of its own turn."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from oauthbroker.audit import CallRefused
from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready
from oauthbroker.model.turn_token import narrow
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.web.api.call_table import OPERATIONS, PROBES, Operation
from oauthbroker.web.api.openapi import DOCUMENT
from oauthbroker.web.api.proxy import PATH
from tests.kit import running_broker
from tests.kit.running_broker import Harness, turn
from tests.story.api.kit import TOOLS, Caller, Callers
from tests.story.binding_kit import ALICE, came_back, code_on, confirming_harness, of_alice

CONFIRM = "/v1/auth-sessions/confirm"
SWITCH = {"oauthAppRef": "mail", "switchAccount": True}
MAY_SHOW = ("ticket", "access token", "turn token")
API_PAGE = Path(__file__).parents[3] / "docs" / "api-hostile-tools.md"

Narrowing = Callable[[dict[str, str], Harness], Secret]
NARROWED: dict[str, Narrowing] = {
    "the tool's own": lambda tokens, _: Secret(tokens["tool"]),
    "for a tool": lambda tokens, _: narrow(Secret(tokens["turn"]), tool="Tool/both"),
    "for an app": lambda tokens, _: narrow(Secret(tokens["turn"]), apps={"mail": None}),
    "for a while": lambda tokens, harness: narrow(
        Secret(tokens["turn"]), expires_at=harness.clock.now() + timedelta(seconds=60)
    ),
    "for a tool and a while": lambda tokens, harness: narrow(
        Secret(tokens["tool"]), expires_at=harness.clock.now() + timedelta(seconds=60)
    ),
}
narrowed = pytest.mark.parametrize("narrowing", NARROWED.values(), ids=NARROWED)


async def holders(api: Callers, narrowing: Narrowing, user: str, team: str | None = None) -> tuple[Caller, Caller]:
    """The runtime with its turn's own token, and a tool with a narrowed one of the same turn."""
    begun = await api.begin(user=user, team=team)
    tokens = {"turn": begun["turnToken"], "tool": begun["toolTokens"]["Tool/mail"]}
    token = narrowing(tokens, api.harness)
    Canaries.active().add(token, "turn token")
    return api.holding(tokens["turn"]), api.holding(token)


def refusals(harness: Harness) -> list[tuple[str, str]]:
    return [(it.route, it.code) for it in harness.audit.entries if isinstance(it, CallRefused)]


@pytest.mark.case("14b", "79")
@narrowed
async def test_a_tool_that_agreed_with_its_own_account_cannot_confirm_its_own_browser(
    identity_provider: IdentityProvider, test_clock: TestClock, narrowing: Narrowing
) -> None:
    """It opens the link itself and reads the code off the page. The person never saw either."""
    async with confirming_harness(identity_provider, test_clock, "channelCode", tools=TOOLS) as harness:
        runtime, tool = await holders(await Callers.of(harness), narrowing, ALICE)
        asked = await harness.ask_link(of=of_alice())
        said = {"channelCode": code_on(await came_back(harness, asked, harness.browser(), account="mallory"))}
        for _ in range(6):  # more often than a code may be said: none of these is a try
            refused = await tool.post(CONFIRM, said)
            assert (403, "notAllowed") == (refused.status, refused.code)
        assert {(f"POST {CONFIRM}", "notAllowed")} == set(refusals(harness))
        assert 0 == harness.idp.count("token"), "the code was redeemed"
        assert isinstance(await harness.ask(of=of_alice()), AuthorizationRequired)
        assert 200 == (await runtime.post(CONFIRM, said)).status, "the word of the runtime still counts"


@pytest.mark.case("79")
@narrowed
async def test_a_tool_cannot_say_no_for_the_person(harness: Harness, api: Callers, narrowing: Narrowing) -> None:
    runtime, tool = await holders(api, narrowing, running_broker.ALICE)
    asked = await harness.ask_link(of=turn(user=running_broker.ALICE, team=None))
    path = f"/v1/auth-sessions/{asked.auth_session_id}"
    assert (403, "notAllowed") == ((no := await tool.delete(path)).status, no.code)
    assert "pending" == (await runtime.get(path)).json()["status"]
    assert {"cancelled": True} == (await runtime.delete(path)).json()


@pytest.mark.case("41", "79")
@narrowed
@pytest.mark.parametrize("binding", ["channelCode", "runtimeConfirm"])
async def test_a_tool_cannot_switch_accounts_over_the_api(
    identity_provider: IdentityProvider, test_clock: TestClock, narrowing: Narrowing, binding: str
) -> None:
    async with confirming_harness(identity_provider, test_clock, binding, tools=TOOLS) as harness:
        runtime, tool = await holders(await Callers.of(harness), narrowing, ALICE)
        refused = await tool.post("/v1/tokens", SWITCH)
        assert (200, "notAllowed") == (refused.status, refused.code)
        assert [("POST /v1/tokens", "notAllowed")] == refusals(harness)
        assert [] == (await runtime.get("/v1/turn/pending")).json()["items"], "no link was made"
        answer = await runtime.post("/v1/tokens", SWITCH, allow=MAY_SHOW)
        assert "authorization_required" == answer.json()["status"]


@pytest.mark.case("41")
@pytest.mark.parametrize("tool", [None, "Tool/mail", "Tool/both"])
async def test_only_the_runtimes_own_view_switches_accounts_in_process(harness: Harness, tool: str | None) -> None:
    before = await harness.connected()
    oauth = harness.broker.oauth(turn(), tool=tool)
    result = await oauth.get_access_token("mail", switch_account=True)
    if tool is None:
        assert isinstance(result, AuthorizationRequired)
        return
    assert isinstance(result, Failed)
    assert (Code.NOT_ALLOWED, False) == (result.code, result.retryable)
    assert await harness.broker.pending(turn()) is None, "no link was made"
    after = await oauth.get_access_token("mail")
    assert isinstance(after, Ready)
    assert before.access_token == after.access_token


def answered() -> dict[str, tuple[str, str]]:
    """call -> (who of a turn may make it, what a hostile tool can do with it), from the table on the page."""
    rows = re.findall(r"^\| `([A-Z]+ /\S+)` \| ([a-z ]+) \| (.+) \|$", API_PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(rows) == len({call for call, _, _ in rows}), "a call twice"
    return {call: (may, what) for call, may, what in rows}


def open_to(operation: Operation) -> str:
    if not operation.who:
        return "all"
    return "a tool" if "turn" in operation.who else "no tool"


def test_the_page_says_of_every_call_what_a_hostile_tool_can_do_with_it() -> None:
    """A new call needs a row, and a row about who may make it that is true."""
    calls = {f"{each.method} {each.path}": open_to(each) for each in (*OPERATIONS, DOCUMENT, *PROBES)}
    calls[f"ANY {PATH}"] = "a tool"
    said = answered()
    assert calls == {call: may for call, (may, _) in said.items()}
    assert [] == [call for call, (may, what) in said.items() if what.startswith("Nothing") != (may != "a tool")], (
        "a call for tools gives a hostile tool something, and any other gives it nothing"
    )
