"""Two accounts of one user in the adapters of agent frameworks: consent, refusal and resumption belong to one connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from oauthbroker import AuthorizationRequired, AuthorizationRequiredError, Turn
from oauthbroker.integrations import OAuthMcp, PausedRun, PauseEnd, consent_for, pause, resume
from oauthbroker.integrations.consent import Missing, lacked
from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.bundle import ToolAuth
from oauthbroker.model.plugin_resources import PluginResources
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import Harness, running, turn, user_app
from tests.story.paused_runs_kit import Runs

BOTH = ["work", "private"]
PERSONS = {"work": "alice", "private": "bob"}
DECLARED = (ToolAuth("mail", ("read",)),)
TOOLS = {"Tool/mail": DECLARED, "Tool/mail-work": DECLARED, "Tool/mail-private": DECLARED}


def listing(default: str | None = None) -> Turn:
    base = turn()
    assert base.auth is not None
    listed = {"allowed": BOTH, **({} if default is None else {"default": default})}
    return replace(base, auth=replace(base.auth, accounts={"OAuthApp/mail": listed}))


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    owner = Owner(binding="localOperator", user_identity=IdentityRule("idToken", "idp:user:{sub}"))
    api = ApiAccess((ApiHost("api.example.com"),))
    app = user_app(identity_provider, owner=owner, several_accounts=True, api=api)
    plugins = {"integrations": PluginResources(())}
    async with running(identity_provider, [app], clock=test_clock, tools=TOOLS, plugins=plugins) as made:
        yield made


async def lacks(harness: Harness, account: str) -> Missing:
    """Return what a call lacks whose tool names its account itself, as the adapters ask."""
    of = listing()
    missing = await consent_for(harness.broker, of, "mail")
    if missing is not None:
        return missing
    try:
        async with harness.broker.oauth(of, "Tool/mail").client(f"mail@{account}") as client:
            await client.get("https://api.example.com/")
    except AuthorizationRequiredError as error:
        return await lacked(harness.broker, error)
    return None


async def ended(harness: Harness, asked: AuthorizationRequired, of: Turn, then: Any, *, deny: bool, who: str) -> None:
    """Let a run wait for a consent, which ends, and do something in the run that goes on."""
    runs = Runs(harness)

    async def went_on(_run: PausedRun, _end: PauseEnd) -> None:
        await then()

    runs.then = went_on
    await pause(harness.broker, of, asked, run="thread")
    await harness.connect(asked, who, deny=deny)
    async with resume(harness.broker, "planner", runs.go_on):
        await runs.settled()
    assert 1 == len(runs.calls)


async def test_who_declines_one_account_is_asked_for_another(harness: Harness) -> None:
    asked = await lacks(harness, "work")
    assert isinstance(asked, AuthorizationRequired)
    found = dict[str, Missing]()

    async def again() -> None:
        found.update({account: await lacks(harness, account) for account in BOTH})

    await ended(harness, asked, listing(), again, deny=True, who="alice")
    assert isinstance(found["work"], str)
    assert "Access was not granted" in found["work"]
    assert isinstance(found["private"], AuthorizationRequired)
    waiting = await harness.broker.sessions.list(status="pending")
    assert ["private"] == [each.account for each in waiting], "no new link for the account that was declined"


@pytest.mark.parametrize("default", BOTH)
async def test_a_refusal_counts_for_the_account_that_is_the_default(harness: Harness, default: str) -> None:
    asked = await consent_for(harness.broker, listing("work"), "mail")
    assert isinstance(asked, AuthorizationRequired)
    found: list[Missing] = []

    async def again() -> None:
        found.append(await consent_for(harness.broker, listing(default), "mail"))

    await ended(harness, asked, listing("work"), again, deny=True, who="alice")
    (missing,) = found
    assert isinstance(missing, str if default == "work" else AuthorizationRequired)


@pytest.mark.parametrize("account", BOTH)
async def test_a_run_goes_on_when_its_own_account_is_connected(harness: Harness, account: str) -> None:
    asked = await lacks(harness, account)
    assert isinstance(asked, AuthorizationRequired)
    found: list[Any] = []

    async def again() -> None:
        found.extend([await harness.ask("mail", ["read"], listing(), account=each) for each in BOTH])

    await ended(harness, asked, listing(), again, deny=False, who=PERSONS[account])
    assert ["ready" if each == account else "authorization_required" for each in BOTH] == [it.status for it in found]


async def test_an_mcp_server_of_a_framework_has_an_account_of_its_own(harness: Harness) -> None:
    of = listing()
    servers = {name: OAuthMcp(harness.broker, f"mail-{name}", account=name) for name in BOTH}

    async def tools() -> list[Any]:
        return ["send"]

    async def listed() -> dict[str, list[Any]]:
        return {name: await server.listed(of, tools, "ours") for name, server in servers.items()}

    assert {"work": ["ours"], "private": ["ours"]} == await listed()
    asked = await servers["work"].missing(of)
    assert isinstance(asked, AuthorizationRequired)
    during: list[dict[str, list[Any]]] = []

    async def again() -> None:
        during.append(await listed())

    await ended(harness, asked, of, again, deny=False, who="alice")
    assert [{"work": ["send", "ours"], "private": ["ours"]}] == during, "only the run's own server says it is connected"
    assert {"work": ["send"], "private": ["ours"]} == await listed()
    assert await servers["work"].missing(of) is None
    unnamed = await OAuthMcp(harness.broker, "mail").missing(of)
    assert unnamed is None or isinstance(unnamed, str), "without a name its call says which accounts there are"


async def test_an_account_that_the_turn_does_not_list_is_a_sentence_for_the_model(harness: Harness) -> None:
    missing = await OAuthMcp(harness.broker, "mail", account="other").missing(listing())
    assert isinstance(missing, str)
    assert [] == await harness.broker.sessions.list(status="pending")
