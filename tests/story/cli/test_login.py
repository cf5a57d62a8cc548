"""`oauthbroker login`, `status`, `logout` and `oauthbroker.local`, for one person without a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import oauthbroker
from oauthbroker import BrokerError, Code
from oauthbroker.config.bundle.schema import SCHEMA_LINE
from oauthbroker.personal import logins
from oauthbroker.testing import Browser, Canaries, Client, IdentityProvider, leave
from oauthbroker.testing.provider import FOREVER
from oauthbroker.testing.provider.types import AuthMethod
from tests.story.cli.login_kit import Person
from tests.story.keys_kit import GOOD, NEWER, OF_BOB, KeyApi, key_api
from tests.story.mcp_apps_kit import mcp_site


@pytest.fixture
def person(tmp_path: Path, canaries: Canaries, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Person:
    return Person(tmp_path, canaries, monkeypatch, capsys)


def identity(idp: IdentityProvider, who: str, app: str = "oidc") -> str:
    return f"{app}:user:{idp.account(who).sub}"


async def test_a_person_answers_once_agrees_and_has_the_token(person: Person, idp: IdentityProvider) -> None:
    person.has_oidc(idp)
    alice, secret = identity(idp, "alice"), person.secret
    done, page = await person.log_in(idp, "oidc", answers=[idp.issuer, "client-oidc", secret, "read write"])
    assert page is not None
    assert (0, 200) == (done.code, page.status), done.err
    assert "go back to your terminal" in page.text
    assert f"Connected as {alice}, scope read write. The broker refreshes it.\n" == done.out
    assert [True, True, False, True] == [echo for _, echo in person.asked], "the secret alone is typed unseen"
    assert person.callback("oidc") in done.err
    assert "Opening your browser ... or open http://127.0.0.1:" in done.err
    resource = yaml.safe_load(person.places.app_file("oidc").read_text())
    assert {"binding": "localOperator"}.items() <= resource["spec"]["owner"].items()
    assert secret not in person.texts()

    found = await asyncio.to_thread(oauthbroker.local("oidc").token)
    assert "Secret(***)" == repr(found)
    headers = await asyncio.to_thread(oauthbroker.local("oidc").headers)
    assert {"Authorization": f"Bearer {found.reveal()}"} == headers
    with oauthbroker.local("oidc").client() as oidc:  # the issuer's host is the one that may get the token
        assert 200 == (await asyncio.to_thread(oidc.get, idp.url("/user"))).status_code
    status = await asyncio.to_thread(person.type, "status")
    assert ["oidc", alice, "works", "used", "just", "now"] == status.out.split()
    [line] = json.loads((await asyncio.to_thread(person.type, "status", "--json")).out)
    assert ("works", alice) == (line["state"], line["identity"])

    shown = await asyncio.to_thread(person.type, "config", "show")
    assert resource in [*yaml.safe_load_all(shown.out)], "as a server reads it"
    assert shown.out.startswith(SCHEMA_LINE), "an editor knows its fields"
    made = await asyncio.to_thread(person.type, "init", "--server", "team")
    assert 0 == made.code, made.err
    assert "secrets set" not in made.out, "its store has the client secret"
    for file in Path("team").rglob("*"):
        assert file.is_dir() or secret.encode() not in file.read_bytes(), file


async def test_a_second_login_asks_before_another_account_takes_the_place(
    person: Person, idp: IdentityProvider
) -> None:
    words = person.has_oidc(idp)
    alice, bob = identity(idp, "alice"), identity(idp, "bob")
    first, _ = await person.log_in(idp, *words, "--scopes", "read", "--stdin", stdin=person.secret)
    assert 0 == first.code, first.err

    unasked, _ = await person.log_in(idp, "oidc")
    assert (0, f"oidc is connected as {alice} already.") == (
        unasked.code,
        unasked.out[: unasked.out.index("already.") + 8],
    )
    again, _ = await person.log_in(idp, *words, "--scopes", "read", "--stdin", stdin=person.secret)
    assert (0, True) == (again.code, alice in again.out), again  # the same command, with the address as a parameter
    assert {"issuer": idp.issuer} == yaml.safe_load(person.places.app_file("oidc").read_text())["spec"]["endpoints"]
    declined, _ = await person.log_in(idp, "oidc", answers=["n"])
    assert (2, "Nothing was changed.") == (declined.code, declined.err.strip())
    wider, page = await person.log_in(idp, "oidc", "--scopes", "read write", who="bob")
    assert 2 == wider.code
    assert f"Another account came back than {alice}, which is connected." in wider.err
    assert page is not None
    assert page.status >= 400
    wider, _ = await person.log_in(idp, "oidc", "--scopes", "read write")
    assert (0, True) == (wider.code, "scope read write" in wider.out), wider
    beside, _ = await person.log_in(idp, "oidc", "--account", "work", who="bob")
    assert (0, True) == (beside.code, bob in beside.out), beside
    replaced, _ = await person.log_in(idp, "oidc", who="mallory", answers=["y"])
    assert (0, True) == (replaced.code, identity(idp, "mallory") in replaced.out), replaced

    rows = (await asyncio.to_thread(person.type, "status")).out
    assert [["oidc", "--account", "work", bob], ["oidc", identity(idp, "mallory"), "works", "not"]] == sorted(
        row.split()[:4] for row in rows.splitlines()
    )
    work = oauthbroker.local("oidc", account="work")
    assert await asyncio.to_thread(work.token) != await asyncio.to_thread(oauthbroker.local("oidc").token)


async def test_the_settings_of_a_server_are_none_of_a_login(
    person: Person, idp: IdentityProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OAUTHBROKER_KEY", "OAUTHBROKER_KEY_FILE", "OAUTHBROKER_STORE_ROOT", "CREDENTIALS_DIRECTORY"):
        monkeypatch.setenv(name, str(tmp_path / "server"))
    done, _ = await person.log_in(idp, *person.has_oidc(idp), "--stdin", stdin=person.secret)
    assert 0 == done.code, done.err
    assert [person.data / "oauthbroker" / "keys"] == [key.parent for key in person.keys]
    assert not (tmp_path / "server").exists()


async def test_logout_tells_the_provider_and_forget_leaves_nothing(person: Person, idp: IdentityProvider) -> None:
    words = person.has_oidc(idp)
    done, _ = await person.log_in(idp, *words, "--stdin", stdin=person.secret)
    assert 0 == done.code, done.err
    ended = await asyncio.to_thread(person.type, "logout", "oidc")
    assert (0, "oidc: ended here and at the provider\n") == (ended.code, ended.out)
    assert idp.count("revoke")
    assert ["oidc", "-", "oauthbroker", "login", "oidc"] == (await asyncio.to_thread(person.type, "status")).out.split()
    with pytest.raises(BrokerError, match="Run: oauthbroker login oidc") as refused:
        await asyncio.to_thread(oauthbroker.local("oidc").token)
    assert Code.GRANT_NOT_FOUND is refused.value.code
    again, _ = await person.log_in(idp, "oidc")
    assert (0, True) == (again.code, "Connected as" in again.out), "nothing was asked"

    forgotten = await asyncio.to_thread(person.type, "logout", "oidc", "--forget")
    assert 0 == forgotten.code, forgotten.err
    assert not person.places.names()
    assert "Nothing is connected yet" in (await asyncio.to_thread(person.type, "status")).err
    with pytest.raises(BrokerError, match="There is no app for oidc"):
        await asyncio.to_thread(oauthbroker.local("oidc").token)


async def test_a_provider_that_is_away_is_told_by_the_next_logout(person: Person, idp: IdentityProvider) -> None:
    words = person.has_oidc(idp)
    await person.log_in(idp, *words, "--stdin", stdin=person.secret)
    await person.log_in(idp, "oidc", "--account", "work", who="bob")
    idp.script.revoke.answer(503, times=FOREVER)
    away = await asyncio.to_thread(person.type, "logout", "oidc", "--account", "")
    assert 3 == away.code
    assert "did not answer" in away.out
    assert "tell it later: oauthbroker logout oidc --account ''" in away.out, "work stays"
    rows = (await asyncio.to_thread(person.type, "status")).out.splitlines()
    assert ["ended here" in row for row in rows] == ["--account work" not in row for row in rows], rows
    kept = await asyncio.to_thread(person.type, "logout", "oidc", "--forget")
    assert (3, True) == (kept.code, "its app stays" in kept.out), kept
    assert ["oidc"] == person.places.names()
    idp.script.revoke.reset()
    told = idp.count("revoke")
    again = await asyncio.to_thread(person.type, "logout", "oidc")
    assert (0, 2) == (again.code, again.out.count("ended here and at the provider")), again
    assert told < idp.count("revoke")
    assert "oauthbroker login oidc" in (await asyncio.to_thread(person.type, "status")).out

    await person.log_in(idp, "oidc")
    idp.script.revoke.answer(400, {"error": "invalid_client"}, times=FOREVER)
    refused = await asyncio.to_thread(person.type, "logout", "oidc")
    assert (3, True) == (refused.code, "refused; look there" in refused.out), refused
    forgotten = await asyncio.to_thread(person.type, "logout", "oidc", "--forget", "--yes")
    assert (3, True) == (forgotten.code, "end it there, in the settings of your account" in forgotten.out), forgotten
    assert "oauthbroker logout" not in forgotten.out
    assert [] == person.places.names()


async def test_after_a_login_that_failed_the_next_one_asks_again(
    person: Person, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.has_oidc(idp)
    alice, secret = identity(idp, "alice"), person.secret
    wrong = ["http://127.0.0.1:9", "client-oidc", "a wrong secret", "read"]
    with monkeypatch.context() as patch:
        patch.setattr(logins, "CONSENT_SECONDS", 1.0)
        away, _ = await person.log_in(idp, "oidc", answers=wrong)
    assert 0 != away.code
    refused, _ = await person.log_in(idp, "oidc", answers=[idp.issuer, "", "", ""])
    assert (2, True) == (refused.code, "oidc does not accept this app" in refused.err), refused
    assert "has never been connected" in refused.err
    assert person.callback("oidc") in refused.err
    assert ["  Client ID", "  Client secret (empty: the same)", "  Scopes"] == [
        question for question, _ in person.asked[1:]
    ]
    done, _ = await person.log_in(idp, "oidc", answers=["", "", secret, "read write"])
    assert (0, True) == (done.code, f"Connected as {alice}, scope read write." in done.out), done
    proven, _ = await person.log_in(idp, "oidc", "--yes", answers=[])
    assert (0, []) == (proven.code, person.asked), proven


WRONG = {
    "a client id": (("--client-id", "client-wrong"), None),
    "a secret": (("--stdin",), "a wrong secret"),
    "an issuer": (("--param", "issuer=http://127.0.0.1:9"), None),
}


@pytest.mark.parametrize("account", ["", "b"])
@pytest.mark.parametrize("wrong", WRONG)
async def test_a_login_that_fails_leaves_a_working_app_and_its_accounts_as_they_were(
    person: Person, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch, wrong: str, account: str
) -> None:
    words, stdin = WRONG[wrong]
    client = person.has_oidc(idp, access_lifetime=1)
    done, _ = await person.log_in(idp, *client, "--stdin", stdin=person.secret)
    assert 0 == done.code, done.err
    before = {path: path.read_text() for path in person.data.rglob("*.yaml")}
    again = ("login", "oidc", "--account", account, "--yes", *words)
    if stdin is None:  # the provider has no such client, or is not there: no browser comes back
        monkeypatch.setattr(logins, "CONSENT_SECONDS", 0.1)
        failed = await asyncio.to_thread(person.type, *again)
    else:
        failed, _ = await person.log_in(idp, *again[1:], stdin=stdin)
    assert 0 != failed.code, failed
    assert before == {path: path.read_text() for path in person.data.rglob("*.yaml")}
    await asyncio.sleep(1)  # the token has ended, and the next one needs the client
    asked = idp.count("token")
    assert await asyncio.to_thread(oauthbroker.local("oidc").token)
    assert asked + 1 == idp.count("token")


async def test_a_client_that_a_login_has_proven_takes_the_place_of_the_old_one(
    person: Person, idp: IdentityProvider
) -> None:
    words = person.has_oidc(idp)
    await person.log_in(idp, *words, "--stdin", stdin=person.secret)
    client = idp.register(Client("client-new", redirect_uris=(person.callback("oidc"),)))
    new = client.reveal_secret()
    done, _ = await person.log_in(idp, "oidc", "--client-id", "client-new", "--stdin", stdin=new)
    assert 0 == done.code, done.err
    resource = yaml.safe_load(person.places.app_file("oidc").read_text())
    assert "client-new" == resource["spec"]["client"]["clientId"]
    assert {"ref": "Secret/oidc", "key": "client_secret"} == resource["spec"]["client"]["clientSecret"]["valueFrom"][
        "secretRef"
    ]
    assert new not in person.texts()
    again, _ = await person.log_in(idp, "oidc", "--yes")
    assert 0 == again.code, again.err


SECRET = {"valueFrom": {"secretRef": {"ref": "Secret/github", "key": "client_secret"}}}
GITHUB = {"apiVersion": "agents.example.io/v1alpha1", "kind": "OAuthApp", "metadata": {"name": "github"}}


def write_github(
    person: Person, idp: IdentityProvider, *, method: AuthMethod = "client_secret_basic", **changes: Any
) -> str:
    """An app of the preset, at the scripted provider; the secret of its client."""
    back = (person.callback("github"),)
    client = idp.register(Client("gh", redirect_uris=back, auth_method=method, dialect="github", device_interval=1))
    ours = idp.endpoints
    spec = {
        "provider": "github",
        "flow": "authorizationCode",
        "subjectMode": "user",
        "client": {"clientId": "gh", "clientSecret": SECRET, "authMethod": method},
        "endpoints": {
            "authorizationUrl": ours["authorizationUrl"],
            "tokenUrl": ours["tokenUrl"],
            "deviceAuthorizationUrl": ours["deviceAuthorizationUrl"],
            "userInfoUrl": idp.url("/user"),
            "issuer": idp.issuer,
        },
        "scopes": ["repo"],
        "owner": {"binding": "localOperator"},
        "api": {"hosts": [idp.base_url]},
    }
    person.places.app_file("github").write_text(yaml.safe_dump({**GITHUB, "spec": {**spec, **changes}}))
    return client.reveal_secret()


async def test_a_program_gets_clients_with_and_without_await(person: Person, idp: IdentityProvider) -> None:
    secret = write_github(person, idp)
    done, _ = await person.log_in(idp, "github", "--stdin", stdin=secret)
    assert 0 == done.code, done.err

    def program() -> Any:
        with oauthbroker.local("github").client() as github:
            return github.get(idp.url("/user")).json()

    assert (await asyncio.to_thread(program))["id"]
    async with oauthbroker.local("github").async_client() as github:
        assert 200 == (await github.get(idp.url("/user"))).status_code


@pytest.mark.slow
async def test_over_ssh_a_code_is_typed_elsewhere_or_a_port_is_forwarded(
    person: Person, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 50000 192.0.2.7 22")
    secret = write_github(person, idp)
    begun = asyncio.create_task(asyncio.to_thread(person.type, "login", "github", "--device", "--stdin", stdin=secret))
    device = await until_device(idp, begun)
    await idp.device_agree(idp.url("/device"), device)
    done = await begun
    assert (0, True) == (done.code, "github:user:" in done.out), done
    assert f"and type {device}" in done.err
    assert person.links.empty(), "no browser was opened"

    monkeypatch.setattr(logins, "CONSENT_SECONDS", 0.1)
    forwarded, _ = await person.log_in(idp, "github", "--no-device", "--yes")
    assert (2, True) == (forwarded.code, "The link has ended, because no consent came from" in forwarded.err), forwarded
    assert f"ssh -L {person.port}:127.0.0.1:{person.port} 192.0.2.7" in forwarded.err


async def until_device(idp: IdentityProvider, begun: asyncio.Task[Any]) -> str:
    while not begun.done():
        if codes := list(idp._state.devices):
            return codes[0]
        await asyncio.sleep(0.01)
    pytest.fail(begun.result().err)


async def test_a_secret_that_is_given_later_is_the_clients_from_then_on(person: Person, idp: IdentityProvider) -> None:
    public = {"clientId": "gh", "authMethod": "none"}
    secret = write_github(person, idp, method="client_secret_post", flow="deviceCode", client=public)
    done, _ = await person.log_in(idp, "github", "--no-device", "--stdin", stdin=secret)
    assert 0 == done.code, done.err
    app = yaml.safe_load(person.places.app_file("github").read_text("utf-8"))
    assert {"clientId": "gh", "clientSecret": SECRET} == app["spec"]["client"]


def test_a_key_where_the_oauth_app_has_the_name_is_refused(person: Person, idp: IdentityProvider) -> None:
    secret = write_github(person, idp)
    done = person.type("login", "github", "--key", "--stdin", stdin=secret)
    said = "github is an OAuth app here. To use a key instead, run: oauthbroker logout github --forget"
    assert (2, said) == (done.code, done.err.strip())


def write_meter(person: Person, api: KeyApi) -> None:
    spec = {
        "subjectMode": "user",
        "accounts": "several",
        "fields": {"apiKey": {"title": "API key", "obtain": "https://meter.example/keys"}},
        "inject": {"headers": {"X-Api-Key": "{apiKey}"}},
        "verify": {"path": "/me", "account": "meter:user:{id}"},
        "owner": {"binding": "localOperator"},
        "api": {"hosts": [f"http://127.0.0.1:{api.port}"]},
    }
    meter = {**GITHUB, "kind": "CredentialApp", "metadata": {"name": "meter"}, "spec": spec}
    person.places.app_file("meter").write_text(yaml.safe_dump(meter))


async def test_a_key_is_typed_unseen_checked_and_never_handed_out(person: Person) -> None:
    async with key_api() as api:
        write_meter(person, api)
        unknown = await asyncio.to_thread(person.type, "login", "meter", "--stdin", stdin="key-unknown\n")
        assert (2, 1) == (unknown.code, unknown.err.lower().count("nothing was stored")), unknown
        done = await asyncio.to_thread(person.type, "login", "meter", answers=["key-unknown", GOOD])
        assert 0 == done.code, done.err
        assert "Connected as meter:user:U234567. The key is sealed here; Meter accepted it." in done.out.replace(
            "meter accepted", "Meter accepted"
        )
        assert [False, False] == [echo for _, echo in person.asked]
        assert "Made at https://meter.example/keys" in done.err

        def program() -> int:
            with oauthbroker.local("meter").client() as meter:
                return meter.get(api.url("/data")).status_code

        assert 200 == await asyncio.to_thread(program)
        with pytest.raises(BrokerError, match=r"never handed out. Use oauthbroker.local\('meter'\).client\(\)"):
            await asyncio.to_thread(oauthbroker.local("meter").headers)
        other = await asyncio.to_thread(person.type, "login", "meter", answers=["y", OF_BOB])
        assert (0, True) == (other.code, "meter:user:U345678" in other.out), other
        api.keys.clear()
        with pytest.raises(BrokerError, match=r"The connection has ended for meter\. Run: oauthbroker login meter"):
            await asyncio.to_thread(program)
        status = await asyncio.to_thread(person.type, "status")
        assert "key rejected" in status.out
        api.keys[NEWER] = "U345678"
        again = await asyncio.to_thread(person.type, "login", "meter", "--stdin", stdin=NEWER)
        assert 0 == again.code, again
        ended = await asyncio.to_thread(person.type, "logout", "meter")
        assert "still works at the provider until it is ended there: https://meter.example/keys" in ended.out
        assert not any(key in person.texts() for key in (GOOD, NEWER, OF_BOB))


async def test_an_mcp_server_needs_its_address_and_no_answer(person: Person, idp: IdentityProvider) -> None:
    idp.takes_clients = True
    async with mcp_site(idp) as site:
        done, _ = await person.log_in(idp, site.url)
        said = "Connected, scope read offline_access. mcp does not say whose account it is. The broker refreshes it.\n"
        assert (0, said) == (done.code, done.out)
        again, _ = await person.log_in(idp, site.url)
        assert (0, "mcp is connected already. ") == (again.code, again.out[:26]), again
        assert ["mcp", "-", "works"] == (await asyncio.to_thread(person.type, "status")).out.split()[:3]
        assert isinstance(await asyncio.to_thread(oauthbroker.local("mcp").token), oauthbroker.Secret)
        idp.takes_clients = False
        site.publish(resource=site.server.url + "/other")
    assert ["mcp"] == person.places.names()


async def test_cancel_at_the_provider_is_said_and_no_success(person: Person, idp: IdentityProvider) -> None:
    words = person.has_oidc(idp)
    done, _ = await person.log_in(idp, *words, "--stdin", stdin=person.secret, deny=True)
    assert 2 == done.code
    assert "You said no at oidc. Nothing was connected.\n" == done.err[done.err.index("You said") :]
    assert "oauthbroker login oidc" in (await asyncio.to_thread(person.type, "status")).out


async def test_another_browser_cannot_finish_a_login(person: Person, idp: IdentityProvider) -> None:
    words = person.has_oidc(idp)
    begun, link = await person.started("login", *words, "--stdin", stdin=person.secret)
    browser, stranger = Browser(canaries=person.canaries), Browser(canaries=person.canaries)
    to_provider = (await leave(browser, link)).next_url
    planted = await idp.agree(to_provider or "", "bob", browser=stranger)
    assert (await stranger.open(planted)).status >= 400
    done = await begun
    assert 2 == done.code
    assert "another browser" in done.err
    assert "oauthbroker login oidc" in (await asyncio.to_thread(person.type, "status")).out
    done, _ = await person.log_in(idp, "oidc")
    assert (0, True) == (done.code, identity(idp, "alice") in done.out), done


@pytest.mark.parametrize("has_endpoint", [True, False])
async def test_the_issuers_metadata_says_whether_it_has_a_device_flow(
    person: Person, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch, has_endpoint: bool
) -> None:
    words = person.has_oidc(idp, device_interval=1)
    if not has_endpoint:
        idp.script.discovery.alter(lambda it: {**it, "device_authorization_endpoint": None}, times=FOREVER)
    begun = asyncio.create_task(
        asyncio.to_thread(person.type, "login", *words, "--device", "--stdin", stdin=person.secret)
    )
    if has_endpoint:
        await idp.device_agree(idp.url("/device"), await until_device(idp, begun))
    done = await begun
    said = "Connected as" if has_endpoint else "If it has no device flow: --no-device."
    assert (0 if has_endpoint else 2, True) == (done.code, said in done.out + done.err), done
