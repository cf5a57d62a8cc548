"""`oauthbroker logout` of one of several accounts, at a provider that may end all of them at once."""

from __future__ import annotations

import asyncio

from oauthbroker.testing import IdentityProvider
from tests.story.cli.login_kit import Person
from tests.story.mcp_apps_kit import mcp_site


async def test_accounts_that_the_server_does_not_name_are_all_ended_there_with_the_last_logout(
    person: Person, idp: IdentityProvider
) -> None:
    idp.takes_clients = True
    async with mcp_site(idp) as site:
        await person.log_in(idp, site.url)
        for account in ("work", "home"):
            done, _ = await person.log_in(idp, "mcp", "--account", account)
            assert 0 == done.code, done.err
        (client,) = {token.agreement.client_id for token in idp._state.token_table.tokens.values()}
        assert 3 == idp.living_tokens(client, "alice")
        for account in ("", "work"):
            first = await asyncio.to_thread(person.type, "logout", "mcp", "--account", account)
            assert (0, True) == (first.code, "is told when your other connection there ends" in first.out), first
        assert (0, 3) == (idp.count("revoke"), idp.living_tokens(client, "alice")), "home still works"
        last = await asyncio.to_thread(person.type, "logout", "mcp")
        assert (0, "mcp --account home: ended here and at the provider\n") == (last.code, last.out)
        assert 0 == idp.living_tokens(client, "alice")


async def test_all_accounts_at_once_are_each_ended_at_the_provider(person: Person, idp: IdentityProvider) -> None:
    idp.takes_clients = True
    async with mcp_site(idp) as site:
        await person.log_in(idp, site.url)
        await person.log_in(idp, "mcp", "--account", "work")
        done = await asyncio.to_thread(person.type, "logout", "mcp", "--forget")
    assert (0, 2) == (done.code, done.out.count("ended here and at the provider")), done
    assert not [token for token in idp._state.token_table.tokens.values() if idp.is_alive(token.text)]
