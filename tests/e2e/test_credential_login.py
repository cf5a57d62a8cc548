"""A key under `brokerLogin` in a real browser: the login at a provider we did not write, then the page of the key."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser

from oauthbroker.injection.errors import InjectionError
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.testing import Canaries
from tests.e2e import authority, bundle, pictures, served
from tests.e2e.person import Person
from tests.story.keys_kit import GOOD, key_api

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.case("151")
async def test_the_person_signs_in_first_and_types_then(tmp_path: Path, canaries: Canaries, chromium: Browser) -> None:
    """Another person who signs in gets no fields, and the link goes on working for its own."""
    listener, clock = served.free_port(), served.LateClock()
    home = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with AsyncExitStack() as stack:
        stack.enter_context(listener)
        api = await stack.enter_async_context(key_api())
        provider = await stack.enter_async_context(authority.running([bundle.staff_client(home)]))
        login = {
            "client": {"clientId": "staff", "authMethod": "none"},
            "endpoints": {"issuer": provider.issuer},
            "subject": "example:user:{sub}",
        }
        written = bundle.write(tmp_path, home, provider.issuer, [], more={"login": login})
        (written / "meter.yaml").write_text(json.dumps(meter(api.port)), "utf-8")
        running = await stack.enter_async_context(served.embedded(written, listener, {}, clock))
        async with running.broker.oauth(bundle.turn()).client("meter") as client:
            with pytest.raises(InjectionError) as raised:
                await client.get(api.url("/data"))
            asked = raised.value.result
            assert isinstance(asked, AuthorizationRequired), asked
            bob = await Person.with_profile(chromium, home, canaries)
            await sign_in(bob, asked.authorization_url, "bob")
            assert "Not the right account" in await bob.text()
            assert 0 == await bob.page.locator(".secret").count()
            alice = await Person.with_profile(chromium, home, canaries)
            await sign_in(alice, asked.authorization_url, "alice")
            await alice.page.locator(".secret").wait_for()
            await pictures.take(alice.page, "credential-after-login")
            await alice.page.reload()
            await alice.page.locator(".secret").fill(GOOD)
            await alice.page.keyboard.press("Enter")
            await alice.page.get_by_role("heading", name="Meter is connected").wait_for()
            assert 200 == (await client.get(api.url("/data"))).status_code
        assert [] == alice.shared_circuits


async def sign_in(person: Person, link: str, account: str) -> None:
    """From the link to the page after the login."""
    await person.open(link)
    assert 0 == await person.page.locator(".secret").count()
    await person.press("Sign in first")
    await person.page.get_by_role("heading", name="Sign-in").wait_for()
    await person.sign_in(account)
    await person.consent()
    await person.page.locator("main h1").wait_for()


def meter(port: int) -> dict[str, Any]:
    spec = {
        "title": "Meter",
        "subjectMode": "user",
        "fields": {"apiKey": {"title": "API key"}},
        "inject": {"headers": {"X-Api-Key": "{apiKey}"}},
        "api": {"hosts": [f"http://127.0.0.1:{port}"]},
        "verify": {"path": "/me"},
        "owner": {"binding": "brokerLogin"},
    }
    return {
        "apiVersion": "agents.example.io/v1alpha1",
        "kind": "CredentialApp",
        "metadata": {"name": "meter"},
        "spec": spec,
    }
