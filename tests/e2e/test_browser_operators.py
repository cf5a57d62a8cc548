"""An operator in a real browser signs in at a provider we did not write, proves anew who they are, and revokes a grant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from oauthbroker.admin.overview import AuditEntries
from oauthbroker.testing import Canaries
from oauthbroker.wiring.admin_parts import AdminParts
from tests.e2e import authority, bundle, served
from tests.e2e.person import Person
from tests.e2e.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

APP, STAFF = "tracked", "staff"
ENTRIES = {"OperatorEntered": "name", "PageAction": "operator"}


def staff_client(home: str) -> dict[str, Any]:
    """The provider's side of the broker's own login."""
    return {
        "client_id": STAFF,
        "client_name": "Example staff",
        "token_endpoint_auth_method": "none",
        "redirect_uris": [f"{home}/login/callback", f"{home}/admin/callback"],
        "response_types": ["code"],
        "grant_types": ["authorization_code"],
    }


@pytest_asyncio.fixture(loop_scope="session")
async def stage(tmp_path: Path, canaries: Canaries, chromium: Browser) -> AsyncIterator[Stage]:
    app = bundle.Registration(APP, "user", "none", "Example tracker")
    listener, clock = served.free_port(), served.LateClock()
    home = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with AsyncExitStack() as stack:
        stack.enter_context(listener)
        provider = await stack.enter_async_context(authority.running([app.client(home), staff_client(home)]))
        login = {
            "client": {"clientId": STAFF, "authMethod": "none"},
            "endpoints": {"issuer": provider.issuer},
            "subject": "example:user:{sub}",
        }
        more = {"login": login, "admin": {"operators": {"subjects": ["example:user:bob"]}}}
        written = bundle.write(tmp_path, home, provider.issuer, [app], more=more)
        broker = await stack.enter_async_context(served.embedded(written, listener, {}, clock))
        yield Stage(home, broker, provider, clock, {APP: app}, chromium, canaries)


async def sign_in(stage: Stage, name: str) -> Person:
    person = await stage.person()
    await person.open(f"{stage.home}/admin")
    await person.press("Sign in")
    await person.sign_in(name)
    await person.press("Continue")
    await person.page.wait_for_url(f"{stage.home}/admin**")
    return person


async def test_an_operator_revokes_a_grant_after_a_fresh_sign_in(stage: Stage) -> None:
    await stage.connected(APP)
    bob = await sign_in(stage, "bob")
    await bob.page.get_by_role("heading", name="Overview").wait_for()
    stage.clock.advance(301)
    await bob.press("Grants")
    await bob.page.locator("main a[href*='/admin/grants/']").first.click()
    await bob.press("Revoke")
    await bob.page.get_by_role("heading", name="Confirm that it is you").wait_for()
    await bob.press("Sign in again")
    await bob.page.get_by_placeholder("Enter any login").fill("bob")
    await bob.page.get_by_placeholder("and password").fill("any password")
    await bob.press("Sign-in")  # the provider asks again, and remembers that bob agreed
    await bob.page.wait_for_url(f"{stage.home}/admin/grants/*/revoke")
    await bob.page.locator("form[action$='/revoke'] button").click()
    await bob.page.wait_for_url(f"{stage.home}/admin/grants/*done=revoked")
    assert [] == bob.shared_circuits
    lines = [line for line in await AdminParts(stage.parts).overview.audit(200, AuditEntries()) if line.type in ENTRIES]
    assert ["PageAction", "OperatorEntered", "OperatorEntered"] == [line.type for line in lines], "the newest first"
    assert {"example:user:bob"} == {line.fields[ENTRIES[line.type]] for line in lines}


async def test_a_user_who_is_no_operator_is_told_so(stage: Stage) -> None:
    person = await sign_in(stage, "mallory")
    await person.page.get_by_text("your account is not an operator").wait_for()
    await person.open(f"{stage.home}/admin/grants")
    await person.page.get_by_role("heading", name="Operator sign-in").wait_for()
