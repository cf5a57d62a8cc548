"""`oauthbroker logout` of one of several accounts, at a provider that may end all of them at once."""

from __future__ import annotations

import asyncio

from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider import FOREVER
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
        done = await asyncio.to_thread(person.type, "logout", "mcp", "--forget", "--yes")
    assert (0, 2) == (done.code, done.out.count("ended here and at the provider")), done
    assert not [token for token in idp._state.token_table.tokens.values() if idp.is_alive(token.text)]


async def test_several_accounts_end_together_only_after_a_yes(person: Person, idp: IdentityProvider) -> None:
    await person.log_in(idp, *person.has_oidc(idp), "--stdin", stdin=person.secret)
    for account in ("work", "home"):
        done, _ = await person.log_in(idp, "oidc", "--account", account)
        assert 0 == done.code, done.err
    both = "oidc, oidc --account home, oidc --account work"
    for words in (("logout", "oidc"), ("logout", "oidc", "--forget")):
        unasked = await asyncio.to_thread(person.type, *words)
        assert (2, True) == (unasked.code, f"oidc has 3 connections: {both}. None was ended. Add --yes" in unasked.err)
    declined = await asyncio.to_thread(person.type, "logout", "oidc", answers=["n"])
    assert (2, [(f"End 3 connections: {both}?", True)]) == (declined.code, person.asked), declined
    assert 3 == (await asyncio.to_thread(person.type, "status")).out.count("works")
    agreed = await asyncio.to_thread(person.type, "logout", "oidc", answers=["y"])
    assert (0, 3) == (agreed.code, agreed.out.count("ended here and at the provider")), agreed


async def test_a_misspelt_account_is_answered_with_the_nearest_and_those_there_are(
    person: Person, idp: IdentityProvider
) -> None:
    words = (*person.has_oidc(idp), "--account", "work", "--stdin")
    await person.log_in(idp, *words, stdin=person.secret)
    meant = "Did you mean oidc --account work? Connected: oidc --account work."
    for command, status in ((("logout", "oidc"), 2), (("token", "oidc"), 75), (("run", "oidc"), 75)):
        line = [*command, "--account", "wrk", *(("--", "true") if command[0] == "run" else ())]
        done = await asyncio.to_thread(person.type, *line)
        assert (status, True) == (done.code, meant in done.err), done
    unnamed = await asyncio.to_thread(person.type, "logout", "oidc", "--account", "")
    assert (2, True) == (unnamed.code, "oidc --account '' is not connected. Nothing was ended." in unnamed.err)
    assert "works" in (await asyncio.to_thread(person.type, "status")).out


async def test_a_login_of_the_same_account_under_another_name_says_so(person: Person, idp: IdentityProvider) -> None:
    await person.log_in(idp, *person.has_oidc(idp), "--stdin", stdin=person.secret)
    again, _ = await person.log_in(idp, "oidc", "--account", "again")
    said = "It is the same account as oidc. For another one, run oauthbroker logout oidc --account again"
    assert (0, True) == (again.code, said in again.out), again
    other, _ = await person.log_in(idp, "oidc", "--account", "bob", who="bob")
    assert (0, False) == (other.code, "It is the same account" in other.out), other


async def test_a_provider_that_was_not_told_has_one_cause(person: Person, idp: IdentityProvider) -> None:
    await person.log_in(idp, *person.has_oidc(idp), "--stdin", stdin=person.secret)
    idp.script.revoke.answer(503, times=FOREVER)
    away = await asyncio.to_thread(person.type, "logout", "oidc")
    assert (3, True) == (away.code, "ended here; oidc did not answer; tell it later" in away.out), away
    file = person.places.app_file("oidc")
    file.write_text(file.read_text().replace("client-oidc", "client-other"))
    changed = await asyncio.to_thread(person.type, "logout", "oidc")
    assert (3, True) == (changed.code, "ended here; the app has another client now; " in changed.out), changed
