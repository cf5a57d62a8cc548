"""Accounts over HTTP: the runtime begins a turn that lists them, and a tool names one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from oauthbroker.model.apps import IdentityRule, Owner
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.running_broker import ALICE, Harness, running, user_app
from tests.story.api.kit import Caller, Callers, checked

MAY_SHOW = ("access token", "ticket", "turn token")
BOTH = {"OAuthApp/mail": ["work", "private"]}
ODD = "a/b@c d%é"


@pytest.fixture
async def several(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    owner = Owner(binding="localOperator", user_identity=IdentityRule("idToken", "idp:user:{sub}"))
    api = ApiAccess((ApiHost("api.example.com"),))
    app = user_app(identity_provider, owner=owner, several_accounts=True, api=api)
    async with running(identity_provider, [app], clock=test_clock) as harness:
        yield harness


async def begun(harness: Harness, accounts: Any) -> tuple[int, Caller, dict[str, Any]]:
    """Begin a turn by the API; return the status, a caller with its token, and the answer."""
    runtime = (await Callers.of(harness)).runtime
    auth = {"subjects": {"user": ALICE}, "accounts": accounts}
    answer = await runtime.post(
        "/v1/turns", {"turn": {"agentName": "planner", "instanceKey": "1", "auth": auth}}, allow=MAY_SHOW
    )
    said = answer.json()
    return answer.status, Caller(harness, said.get("turnToken")), said


async def asked(caller: Caller, **body: Any) -> dict[str, Any]:
    answer = await caller.post("/v1/tokens", {"oauthAppRef": "OAuthApp/mail", **body}, allow=MAY_SHOW)
    assert 200 == answer.status, answer.text
    result: dict[str, Any] = checked("TokenResult", answer.body)
    return result


async def connected(harness: Harness, caller: Caller, account: str, person: str) -> str:
    link = (await asked(caller, account=account))["authorizationUrl"]
    page = await harness.connect(_Link(link), person)  # type: ignore[arg-type]
    assert 200 == page.status
    ready = await asked(caller, account=account)
    assert "ready" == ready["status"]
    return str(ready["accessToken"])


class _Link:
    def __init__(self, url: str) -> None:
        self.authorization_url = url


async def test_a_tool_names_one_of_the_accounts_that_its_turn_lists(several: Harness) -> None:
    _, caller, _ = await begun(several, BOTH)
    work = await connected(several, caller, "work", "alice")
    private = await connected(several, caller, "private", "bob")
    assert work != private
    for _ in range(3):  # by the general way, and by the warm one
        assert work == (await asked(caller, account="work"))["accessToken"]
        answer = await caller.post("/v1/tokens", {"oauthAppRef": "mail@private"}, allow=MAY_SHOW)
        assert private == answer.json()["accessToken"]


async def test_without_a_name_the_answer_lists_the_accounts(several: Harness) -> None:
    _, caller, _ = await begun(several, BOTH)
    await connected(several, caller, "work", "alice")
    error = (await asked(caller))["error"]
    assert "accountRequired" == error["code"]
    assert [{"account": "work", "identity": ALICE}, {"account": "private"}] == error["accounts"]


@pytest.mark.parametrize("account", ["other", "Work", "", "work\u200b"])
async def test_another_account_is_forbidden_and_opens_no_link(several: Harness, account: str) -> None:
    _, caller, _ = await begun(several, BOTH)
    answer = await caller.post("/v1/tokens", {"oauthAppRef": "mail", "account": account})
    assert answer.code in {"accountForbidden", "requestInvalid"}
    assert [] == await several.broker.sessions.list(status="pending")


@pytest.mark.parametrize(
    "accounts",
    [
        {"mail": "work"},
        {"mail": {"allowed": ["work"], "default": "other"}},
        {"mail": ["a" * 129]},
        {"mail": [1]},
        {"mail": ["a\n"]},
    ],
)
async def test_a_turn_with_a_list_of_another_form_does_not_begin(several: Harness, accounts: Any) -> None:
    status, _, _ = await begun(several, accounts)
    assert 400 <= status < 500


@pytest.mark.parametrize(
    ("accounts", "problem"),
    [({"OAuthApp/gmail": ["work"]}, "unknown"), ({"mail": {"allowed": ["work"], "default": "other"}}, "value")],
)
async def test_a_refused_list_has_its_place(several: Harness, accounts: Any, problem: str) -> None:
    status, _, said = await begun(several, accounts)
    assert (400, "accountsInvalid") == (status, said["code"])
    assert [{"pointer": "/turn/auth/accounts", "problem": problem}] == said["errors"]


async def test_the_proxy_takes_the_account_of_the_path_or_of_the_header_and_not_two(several: Harness) -> None:
    _, caller, _ = await begun(several, BOTH)
    header = {"OAuthBroker-Account": "work"}
    for path, more in (("mail@work", {}), ("mail", header)):
        answer = await caller.get(f"/v1/proxy/{path}/api.example.com/v1", headers=more)
        assert (403, "authorization_required") == (answer.status, answer.json()["status"])
    twice = await caller.get("/v1/proxy/mail@private/api.example.com/v1", headers=header)
    assert (400, "requestInvalid") == (twice.status, twice.code)
    none = await caller.get("/v1/proxy/mail/api.example.com/v1")
    assert (409, "accountRequired") == (none.status, none.code)
    other = await caller.get("/v1/proxy/mail@other/api.example.com/v1")
    assert (403, "accountForbidden") == (other.status, other.code)


async def test_an_operator_ends_one_account(several: Harness) -> None:
    _, caller, _ = await begun(several, BOTH)
    await connected(several, caller, "work", "alice")
    private = await connected(several, caller, "private", "bob")
    operator = (await Callers.of(several)).operator
    grants = checked("GrantPage", (await operator.get("/v1/grants")).body)["grants"]
    ids = {grant["account"]: grant["grantId"] for grant in grants}
    assert {"work", "private"} == ids.keys()
    assert 200 == (await operator.delete(f"/v1/grants/{ids['work']}")).status
    assert private == (await asked(caller, account="private"))["accessToken"]
    ended = await several.repository.grant(GrantKey("mail", ALICE, "work"))
    assert ended is not None
    assert ended.record.revoked


async def test_an_account_may_have_any_printable_name_in_each_form(several: Harness) -> None:
    _, caller, _ = await begun(several, {"OAuthApp/mail": [ODD]})
    token = await connected(several, caller, ODD, "alice")
    for ref in (f"mail@{ODD}", f"OAuthApp/mail@{ODD}", {"kind": "OAuthApp", "name": f"mail@{ODD}"}):
        assert token == (await asked(caller, oauthAppRef=ref))["accessToken"]
    answer = await caller.post("/v1/tokens", {"oauthAppRef": f"Other/mail@{ODD}"})
    assert 400 == answer.status
