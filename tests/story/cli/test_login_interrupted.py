"""A login that a kill, a missing network or a wrong flow ends: the answer of the next command, and the stored values."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any, Never

import pytest
import yaml

import oauthbroker
from oauthbroker.personal import logins
from oauthbroker.personal.app_files import AppChange
from oauthbroker.testing import Canaries, Client, IdentityProvider
from tests.story.cli.login_kit import Person
from tests.story.mcp_apps_kit import mcp_site

NAMED_ELSE = """apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {name: gitlab}
spec:
  provider: gitlab
  flow: authorizationCode
  subjectMode: user
  client: {clientId: x, authMethod: none}
  scopes: [read_user]
  owner: {binding: localOperator}
"""


@pytest.fixture
def person(tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Person:
    return Person(tmp_path, canaries, monkeypatch, capsys)


async def test_the_doctor_examines_a_persons_own_connections_where_no_configuration_is(
    person: Person, idp: IdentityProvider
) -> None:
    """A callback on loopback has no TLS by RFC 8252, section 7.3: that is no fault of theirs."""
    await person.log_in(idp, *person.has_oidc(idp), "--stdin", stdin=person.secret)
    done = await asyncio.to_thread(person.type, "doctor", "--json")
    found = json.loads(done.out)
    assert (0, True) == (done.code, found["ok"]), done
    warned = [each["text"] for each in found["checks"] if each["severity"] != "ok"]
    assert ["A check is off: plainHttpProvider."] == warned
    assert "1 alive, 0 revoked." in [each["text"] for each in found["checks"]]


class Killed(BaseException):
    """Ends the command where SIGKILL would."""


@pytest.mark.parametrize("account", ["", "b"])
async def test_a_login_that_is_killed_before_the_changed_app_is_stored_is_to_be_typed_again(
    person: Person, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch, account: str
) -> None:
    """The grant is then one of the new client, and the app has the old one: no token, and `status` says so, too."""
    words = person.has_oidc(idp, access_lifetime=1)
    await person.log_in(idp, *words, "--stdin", stdin=person.secret)
    client = idp.register(Client("client-new", redirect_uris=(person.callback("oidc"),), access_lifetime=1))

    async def killed(*_: Any) -> Never:
        raise Killed

    more = ("--account", account) if account else ()
    change = ("oidc", "--yes", *more, "--client-id", "client-new", "--stdin")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(AppChange, "keep", killed)
        await person.log_in(idp, *change, stdin=client.reveal_secret())
    resource = yaml.safe_load(person.places.app_file("oidc").read_text())
    assert "client-oidc" == resource["spec"]["client"]["clientId"]

    named = f"oidc --account {account}" if account else "oidc"
    status = await asyncio.to_thread(person.type, "status")
    row = [*named.split(), "alice", "needs", "login", "oauthbroker", "login", *named.split()]
    assert row == status.out.splitlines()[-1].split(), status
    assert 1 + bool(account) == len(status.out.splitlines()), "the other account is as it was"
    token = await asyncio.to_thread(person.type, "token", "oidc", *more)
    assert (75, True) == (token.code, f"Run: oauthbroker login {named}" in token.err), token

    again, _ = await person.log_in(idp, *change, stdin=client.reveal_secret())
    assert 0 == again.code, again
    assert await asyncio.to_thread(oauthbroker.local("oidc", account=account or None).token)
    assert "works" in (await asyncio.to_thread(person.type, "status")).out.splitlines()[-1]


async def test_an_app_whose_secret_is_lost_hides_no_other_one(person: Person, idp: IdentityProvider) -> None:
    await person.log_in(idp, *person.has_oidc(idp), "--stdin", stdin=person.secret)
    lost = yaml.safe_load(person.places.app_file("oidc").read_text())
    lost["metadata"]["name"] = "lost"
    lost["spec"]["client"]["clientSecret"]["valueFrom"]["secretRef"]["ref"] = "Secret/lost"
    person.places.app_file("lost").write_text(yaml.safe_dump(lost))
    status = await asyncio.to_thread(person.type, "status")
    assert (0, True, True) == (status.code, "works" in status.out, "oauthbroker login lost" in status.out), status


def github(person: Person, away: str) -> None:
    device = f"{away}/device"
    spec = {
        "provider": "github",
        "flow": "authorizationCode",
        "subjectMode": "user",
        "client": {"clientId": "gh", "authMethod": "none"},
        "endpoints": {"deviceAuthorizationUrl": device, "tokenUrl": device, "issuer": away},
        "scopes": ["repo"],
        "owner": {"binding": "localOperator"},
        "api": {"hosts": [away]},
    }
    app = {
        "apiVersion": "agents.example.io/v1alpha1",
        "kind": "OAuthApp",
        "metadata": {"name": "github"},
        "spec": spec,
    }
    person.places.app_file("github").write_text(yaml.safe_dump(app))


def test_a_device_flow_without_a_network_names_the_provider_and_the_command(person: Person) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        away = f"http://127.0.0.1:{taken.getsockname()[1]}"
    github(person, away)
    done = person.type("login", "github", "--device")
    said = "GitHub does not answer. Look at the network of this machine. Run again: oauthbroker login github\n  See "
    assert (2, True) == (done.code, done.err.startswith(said)), done
    assert "#provider-unreachable" in done.err


def test_a_device_flow_that_the_provider_has_not_is_refused_for_an_app_that_is_there_too(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "CONSENT_SECONDS", 0.1)
    given = person.type("login", "slack", "--client-id", "id", "--stdin", "--port", "1", stdin="secret")
    assert person.places.app_file("slack").exists(), given
    before = person.places.app_file("slack").read_text()
    done = person.type("login", "slack", "--device")
    said = "Slack has no device flow. Leave out --device: the link can be opened on another machine."
    assert (2, said) == (done.code, done.err.strip())
    assert before == person.places.app_file("slack").read_text()


@pytest.mark.parametrize("text", ["", "kind: Tool\n", "{}", NAMED_ELSE])
def test_a_file_that_holds_no_app_of_its_name_is_named_by_each_command(person: Person, text: str) -> None:
    person.places.app_file("github").write_text(text)
    for words in (("token", "github"), ("run", "github", "--", "true"), ("login", "github"), ("logout", "github")):
        done = person.type(*words)
        assert (False, True) == ("Internal error" in done.err, str(person.places.app_file("github")) in done.err), done
        assert (2, True) == (done.code, "move it away" in done.err.lower() or " problem" in done.err), (words, done)


@pytest.mark.parametrize("address", ["https://", "http://mcp.example.com/mcp"])
def test_an_address_of_no_mcp_server_is_answered_with_how_to_write_it(person: Person, address: str) -> None:
    person.places.broker_file.unlink()
    done = person.type("login", address)
    said = f"{address} is no MCP server that can be used: the address of an endpoint is refused. Write it as https://"
    assert (2, True) == (done.code, done.err.startswith(said)), done
    assert "OAuthApp" not in done.err


async def test_the_first_login_on_a_machine_may_be_at_an_mcp_server(person: Person, idp: IdentityProvider) -> None:
    idp.takes_clients = True
    async with mcp_site(idp) as site:
        person.places.broker_file.unlink()
        first = await asyncio.to_thread(person.type, "login", site.url)
        assert (2, True, False) == (first.code, "Write https://" in first.err, "configInvalid" in first.err), first
        broker = yaml.safe_load(person.places.broker_file.read_text())
        broker["spec"] |= {"weaken": ["plainHttpProvider"], "listen": {"host": "127.0.0.1", "port": person.port}}
        person.places.broker_file.write_text(yaml.safe_dump(broker))
        done, _ = await person.log_in(idp, site.url)
    assert (0, True) == (done.code, "Connected, scope" in done.out), done
