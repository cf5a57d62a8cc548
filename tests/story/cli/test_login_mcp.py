"""`oauthbroker login` at an MCP server that has lost the client which it registered."""

from __future__ import annotations

import asyncio

import pytest

import oauthbroker
from oauthbroker.personal import logins
from oauthbroker.testing import IdentityProvider
from tests.story.cli.login_kit import Person
from tests.story.mcp_apps_kit import mcp_site


def forget_clients(idp: IdentityProvider) -> None:
    """Let the server lose the clients that it registered, as a restart does."""
    clients = idp._state.clients
    for name in [name for name in clients if name.startswith("dynamic-")]:
        clients[f"lost-{name}"] = clients.pop(name)


@pytest.mark.parametrize("was_connected", [True, False])
async def test_a_login_at_a_server_that_has_lost_its_client_registers_another_one(
    person: Person, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch, *, was_connected: bool
) -> None:
    idp.takes_clients = True
    async with mcp_site(idp) as site:
        if was_connected:
            first, _ = await person.log_in(idp, site.url)
        else:
            with monkeypatch.context() as patch:
                patch.setattr(logins, "CONSENT_SECONDS", 0.1)
                first = await asyncio.to_thread(person.type, "login", site.url, "--no-browser")
            assert f"run oauthbroker logout mcp --forget, then oauthbroker login {site.url}" in first.err
        assert was_connected == (first.code == 0), first
        forget_clients(idp)
        again, page = await person.log_in(idp, site.url, "--yes")
        assert (0, 2) == (again.code, idp.count("register")), again
        assert page is not None
        assert isinstance(await asyncio.to_thread(oauthbroker.local("mcp").token), oauthbroker.Secret)


async def test_a_server_that_refuses_its_own_client_is_named_with_the_commands_for_another_one(
    person: Person, idp: IdentityProvider
) -> None:
    idp.takes_clients = True
    async with mcp_site(idp) as site:
        idp.script.token.refuse("invalid_client", 401)
        done, _ = await person.log_in(idp, site.url)
        assert (2, True) == (done.code, "mcp does not accept the client that it has registered" in done.err), done
        assert f"run oauthbroker logout mcp --forget, then oauthbroker login {site.url}" in done.err
        assert 0 == (await asyncio.to_thread(person.type, "logout", "mcp", "--forget")).code
        again, _ = await person.log_in(idp, site.url)
    assert (0, 2) == (again.code, idp.count("register")), again
