"""`oauthbroker token` and `run` with a person's own connection: who gets what of it, and who does not."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest
import yaml

from oauthbroker.config.reading.variables import OTHERS, variables
from oauthbroker.testing import IdentityProvider
from tests.kit.cli import Done
from tests.story.cli.login_kit import Person
from tests.story.cli.run_kit import Became, logged_in, typed
from tests.story.keys_kit import GOOD, key_api

TURN = {"OAUTHBROKER_URL": "http://127.0.0.1:1", "OAUTHBROKER_TURN_TOKEN": "oabt." + "l" * 22 + "." + "s" * 43}


async def test_a_program_gets_the_token_of_the_persons_own_connection_and_nothing_more(
    person: Person, idp: IdentityProvider, became: list[Became], monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await logged_in(person, idp)
    person.canaries.may_show("access token")
    printed = await typed(person, "token", "oidc")
    assert Done(0, f"{token}\n", "") == printed
    monkeypatch.setenv("OAUTHBROKER_API_KEY", "an operator's")
    monkeypatch.setenv("OAUTHBROKER_KEY", "of a server's store")
    before = dict(os.environ)
    for way, name in (((), "OAUTHBROKER_ACCESS_TOKEN"), (("--env", "MINE"), "MINE")):
        assert 0 == (await typed(person, "run", "oidc", *way, "--", "gh", "repo", "list")).code
        assert ["gh", "repo", "list"] == became[-1].words
        assert {name: token} == dict(became[-1].env.items() - before.items())
        assert {"OAUTHBROKER_API_KEY", "OAUTHBROKER_KEY"} == before.keys() - became[-1].env.keys()
    narrow = await typed(person, "token", "oidc", "--scope", "admin")
    assert (2, "", True) == (narrow.code, narrow.out, narrow.err.startswith("scopeNotAllowed: "))


async def test_a_program_gets_no_key_and_no_setting_of_a_broker(
    person: Person, idp: IdentityProvider, became: list[Became], monkeypatch: pytest.MonkeyPatch
) -> None:
    await logged_in(person, idp)
    person.canaries.may_show("access token")
    apart = {"OAUTHBROKER_URL", "OAUTHBROKER_TURN_TOKEN"}  # with these it asks another broker
    settings = {"OAUTHBROKER_FLOWS_MAIL_PASSWORD", *variables(), *OTHERS} - apart
    with monkeypatch.context() as server:
        for name in settings:
            server.setenv(name, "of a server")
        assert 0 == (await typed(person, "run", "oidc", "--", "env")).code
    left = {name for name in became[-1].env if name.startswith("OAUTHBROKER_")}
    assert {"OAUTHBROKER_ACCESS_TOKEN", "OAUTHBROKER_LOCALE"} == left


async def test_without_a_login_it_says_which_command_makes_one(
    person: Person, idp: IdentityProvider, became: list[Became]
) -> None:
    await logged_in(person, idp)
    for words in (("token", "oidc", "--account", "work"), ("run", "oidc", "--account", "work", "--", "true")):
        done = await typed(person, *words)
        assert (75, "") == (done.code, done.out)
        assert "Run: oauthbroker login oidc --account work" in done.err
    unknown = await typed(person, "run", "github", "--", "true")
    assert (2, True) == (unknown.code, "Run: oauthbroker login github" in unknown.err)
    document = await typed(person, "token", "oidc", "--account", "work", "--json")
    assert (75, True) == (document.code, '"code": "grantNotFound"' in document.out)
    assert [] == became


@pytest.mark.parametrize(
    "env",
    [TURN, {**TURN, "OAUTHBROKER_TURN_TOKEN": ""}, {"OAUTHBROKER_TURN_TOKEN": "wrong"}, {"OAUTHBROKER_URL": "http://127.0.0.1:1"}],
    ids=["a turn of a broker that is away", "an empty token", "a wrong token alone", "a broker alone"],
)  # fmt: skip
async def test_a_tool_with_a_part_of_a_turn_never_gets_the_persons_own_token(
    person: Person, idp: IdentityProvider, became: list[Became], monkeypatch: pytest.MonkeyPatch, env: dict[str, str]
) -> None:
    token = await logged_in(person, idp)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    for words in (("token", "oidc"), ("run", "oidc", "--", "true")):
        done = await typed(person, *words)
        assert done.code in {2, 69}
        assert token not in done.out + done.err
    assert [] == became


async def test_a_terminal_is_shown_the_token_only_when_the_person_says_so(
    person: Person, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await logged_in(person, idp)
    person.canaries.may_show("access token")
    with monkeypatch.context() as patched:
        patched.setattr(type(sys.stdout), "isatty", lambda _: True, raising=False)
        refused = await typed(person, "token", "oidc")
        shown = await typed(person, "token", "oidc", "--show")
    assert (2, "") == (refused.code, refused.out)
    assert all(way in refused.err for way in ("$(oauthbroker token ...)", "oauthbroker run APP", "--show"))
    assert (0, token) == (shown.code, shown.out.strip())


async def test_a_key_goes_into_a_program_only_where_the_persons_app_says_so(
    person: Person, became: list[Became]
) -> None:
    async with key_api() as api:
        spec = {
            "title": "Meter", "fields": {"apiKey": {"title": "API key"}}, "inject": {"headers": {"X-Api-Key": "{apiKey}"}},
            "subjectMode": "user", "verify": {"path": "/me", "account": "meter:user:{id}"}, "owner": {"binding": "localOperator"},
            "api": {"hosts": [f"http://127.0.0.1:{api.port}"]},
        }  # fmt: skip
        meter = {"apiVersion": "agents.example.io/v1alpha1", "kind": "CredentialApp", "metadata": {"name": "meter"}}
        person.places.app_file("meter").write_text(yaml.safe_dump({**meter, "spec": spec}))
        done = await asyncio.to_thread(person.type, "login", "meter", "--stdin", stdin=GOOD)
        assert 0 == done.code, done.err
        for words in (("run", "meter", "--", "true"), ("token", "meter")):
            refused = await typed(person, *words)
            assert (2, "", True) == (refused.code, refused.out, "oauthbroker.local('meter').client()" in refused.err)
        assert "environment: {apiKey: METER_APIKEY}" in (await typed(person, "run", "meter", "--", "true")).err
        assert [] == became

        person.places.app_file("meter").write_text(
            yaml.safe_dump({**meter, "spec": {**spec, "environment": {"apiKey": "METER_KEY"}}})
        )
        assert 0 == (await typed(person, "run", "meter", "--", "meter", "list")).code
        assert GOOD == became[-1].env["METER_KEY"]
        assert GOOD not in " ".join(became[-1].words)
        twice = await typed(person, "run", "meter", "--env", "X", "--", "true")
        assert (2, True) == (twice.code, "A key goes into the variables that its app names" in twice.err)
        assert (2, "") == ((token := await typed(person, "token", "meter")).code, token.out)
        audit = await typed(person, "audit", "tail", "-c", str(person.places.config), "--json")
        assert ("RUN", "environment", False) == (
            "RUN" in audit.out and "RUN",
            "environment" in audit.out and "environment",
            GOOD in audit.out,
        )
