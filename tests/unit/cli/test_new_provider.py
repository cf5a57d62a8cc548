"""`oauthbroker providers new`: an OAuthApp for a provider without a preset, which loads as it is printed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from oauthbroker.cli.new_provider import new_command
from oauthbroker.cli.providers import app
from oauthbroker.config import load
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.refused import Refused
from oauthbroker.personal.places import Places
from oauthbroker.providers.own_app import OwnProvider, own_app_yaml
from oauthbroker.testing import IdentityProvider
from tests.unit.protocol.kit import RawServer, says

PLAIN = {"NO_COLOR": "1", "COLUMNS": "80", "TERM": "dumb"}
BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec: {publicBaseUrl: "http://127.0.0.1:8420", weaken: [plainHttpProvider]}
---
"""
BY_HAND = ["--endpoint", "authorizationUrl=https://acme.example/a", "--endpoint", "tokenUrl=https://acme.example/t"]


def typed(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["new", *words], env=PLAIN, input=stdin, catch_exceptions=True)


def spec_of(text: str, folder: Path) -> Any:
    """The app as it is written, which the loader takes."""
    folder.joinpath("bundle.yaml").write_text(BROKER + text, "utf-8")
    assert ["acme"] == list(load(folder).apps)
    return yaml.safe_load(text)["spec"]


def test_endpoints_by_hand_make_an_app_that_loads(tmp_path: Path) -> None:
    more = ["--endpoint", "userInfoUrl=https://api.acme.example/me", "--account", "data.id"]
    result = typed("acme", *BY_HAND, *more, "--scope", "read", "--api-host", "api.acme.example")
    spec = spec_of(result.stdout, tmp_path)
    assert {"from": "userInfo", "template": "acme:user:{data.id}"} == spec["owner"]["identity"]["user"]
    assert (["read"], ["api.acme.example"]) == (spec["scopes"], spec["api"]["hosts"])
    assert "/oauth/callback/acme" in result.stderr


def test_an_app_in_a_persons_own_bundle_is_for_their_own_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    Places.of_user().prepare()
    for out, binding in ((Places.of_user().app_file("acme"), "localOperator"), (tmp_path / "acme.yaml", None)):
        assert 0 == typed("acme", *BY_HAND, "--scope", "read", "--out", str(out)).exit_code
        spec = yaml.safe_load(out.read_text("utf-8"))["spec"]
        assert (binding, "several" if binding else None) == (spec["owner"].get("binding"), spec.get("accounts"))


def test_without_userinfo_the_token_answer_names_the_account(tmp_path: Path) -> None:
    spec = spec_of(typed("acme", *BY_HAND, "--scope", "read").stdout, tmp_path)
    assert {"from": "tokenResponse", "template": "acme:user:{id}"} == spec["owner"]["identity"]["user"]


def test_braces_in_an_address_become_what_each_connection_says(tmp_path: Path) -> None:
    words = [each.replace("acme.example", "{shop}.acme.example") for each in BY_HAND]
    assert {"shop": {}} == spec_of(typed("acme", *words).stdout, tmp_path)["connectParams"]


@pytest.mark.parametrize(
    "words, said",
    [
        (["--api-host", "https://api.acme.example/v1"], "spec.api.hosts[0]: Not a host."),
        (["--account", "data..id"], "spec.owner.identity.user.template: Not a template."),
        (["--scope", "read write"], "spec.scopes[0]: Not a scope."),
        (["--endpoint", "userInfoUrl=http://acme.example/me"], "spec.endpoints.userInfoUrl: Http instead of https."),
    ],
)
def test_what_would_not_load_is_told_and_not_written(words: list[str], said: str, tmp_path: Path) -> None:
    file = tmp_path / "acme.yaml"
    result = typed("acme", *BY_HAND, *words, "--out", str(file))
    assert isinstance(result.exception, Refused)
    assert (True, False) == (said.casefold() in str(result.exception).casefold(), file.exists()), result.exception


def test_an_issuers_metadata_tell_the_rest(tmp_path: Path, identity_provider: IdentityProvider) -> None:
    result = typed("acme", "--issuer", identity_provider.issuer, "--scope", "read")
    assert 0 == result.exit_code, result.exception
    spec = spec_of(result.stdout, tmp_path)
    assert {"issuer": identity_provider.issuer} == spec["endpoints"]
    assert {"from": "idToken", "template": "acme:user:{sub}"} == spec["owner"]["identity"]["user"]


def test_a_hostile_scope_of_the_metadata_stays_a_comment(tmp_path: Path) -> None:
    found = OwnProvider(
        name="acme", endpoints={"issuer": "https://id.example"}, offered=("a\nb: c", "x]# {y}"), scopes=("read",)
    )
    spec = spec_of(own_app_yaml(found), tmp_path)
    assert "b" not in spec


async def test_an_issuer_without_metadata_is_told() -> None:
    async with RawServer(says(404, b"{}")) as server:
        result = await asyncio.to_thread(typed, "acme", "--issuer", server.url)
    assert isinstance(result.exception, BrokerError)
    assert Code.APP_MISCONFIGURED is result.exception.code


@pytest.mark.parametrize(
    "words, said",
    [
        (("Acme", *BY_HAND), "small letters"),
        (("github", *BY_HAND), "github has a preset: oauthbroker providers show github"),
        (("acme",), "--endpoint authorizationUrl=https://... and --endpoint tokenUrl=https://..."),
        (("acme", *BY_HAND[:2]), "--endpoint tokenUrl=https://..."),
        (("acme", "--endpoint", "tokenurl=https://acme.example"), "tokenUrl="),
        (("acme", "--endpoint", "https://acme.example"), "no endpoint"),
    ],
)
def test_half_a_description_is_refused_with_what_to_write(words: tuple[str, ...], said: str) -> None:
    result = typed(*words)
    assert isinstance(result.exception, Refused)
    assert said in str(result.exception)


def test_a_file_is_made_once(tmp_path: Path) -> None:
    file = tmp_path / "acme.yaml"
    assert (f"Wrote {file}.\n", 0) == ((made := typed("acme", *BY_HAND, "--out", str(file))).stdout, made.exit_code)
    kept = file.read_text("utf-8")
    assert "exists" in str(typed("acme", *BY_HAND, "--scope", "other", "--out", str(file)).exception)
    assert kept == file.read_text("utf-8")


@pytest.mark.parametrize("place", ["missing/acme.yaml", "a-file/acme.yaml"])
def test_a_file_that_cannot_be_made_is_told(place: str, tmp_path: Path) -> None:
    tmp_path.joinpath("a-file").touch()
    result = typed("acme", *BY_HAND, "--out", str(tmp_path / place))
    assert isinstance(result.exception, Refused)
    assert "cannot be created. Name a file in a folder that exists" in str(result.exception)


def answering(make: Callable[[str], bytes]) -> RawServer:
    """Return a server whose answer names its own address."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await says(200, make(server.url))(reader, writer)

    server = RawServer(handle)
    return server


@pytest.mark.parametrize("missing", ["authorization_endpoint", "token_endpoint"])
async def test_metadata_without_an_endpoint_is_told(missing: str) -> None:
    names = {"authorization_endpoint": "authorizationUrl", "token_endpoint": "tokenUrl"}

    def metadata(url: str) -> bytes:
        return json.dumps({"issuer": url} | {name: f"{url}/x" for name in names if name != missing}).encode()

    async with answering(metadata) as server:
        result = await asyncio.to_thread(typed, "acme", "--issuer", server.url, "--scope", "read")
    assert isinstance(result.exception, Refused)
    assert f"--endpoint {names[missing]}=https://..." in str(result.exception)


def described(url: str, **other: Any) -> dict[str, Any]:
    endpoints = {"authorization_endpoint": f"{url}/a", "token_endpoint": f"{url}/t", "jwks_uri": f"{url}/j"}
    return {"issuer": url, **endpoints, "scopes_supported": ["openid"], **other}


@pytest.mark.parametrize(
    "body, said",
    [
        (lambda url: described(url, issuer="https://other.example"), "another issuer"),
        (lambda url: described(url, issuer=f"{url}/"), "another issuer"),
        (lambda url: described(url, token_endpoint="http://evil.example/t"), "address of an endpoint is refused"),
        (lambda url: described(url, authorization_endpoint="javascript:alert(1)"), "address of an endpoint is refused"),
        (lambda url: described(url, authorization_endpoint=f"{url}/a\r\nX: y"), "address of an endpoint is refused"),
        (lambda url: described(url, token_endpoint=5), "not an address"),
        (lambda url: described(url, pad="x" * 10_000_000), "too large"),
        (b"<html>", "not strict JSON"),
        (b"[" * 100_000, "not strict JSON"),
        (b'{"issuer": "a", "issuer": "b"}', "a name twice"),
        (b'{"issuer": "\\ud800"}', "a lone surrogate"),
    ],
)
async def test_hostile_metadata_are_refused_with_their_reason(body: Any, said: str) -> None:
    async with answering(lambda url: json.dumps(body(url)).encode() if callable(body) else body) as server:
        result = await asyncio.to_thread(typed, "acme", "--issuer", server.url, "--scope", "read")
    assert isinstance(result.exception, BrokerError), result.exception
    assert (True, "") == (said in result.exception.note, result.stdout)


def test_a_terminal_is_asked_for_the_endpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        @staticmethod
        def isatty() -> bool:
            return True

    answers = iter(["", "https://acme.example/a", "https://acme.example/t", "https://acme.example/me", "user.id"])
    monkeypatch.setattr("sys.stdin", Terminal)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers))
    text = tmp_path / "acme.yaml"
    new_command("acme", scope=["read"], out=text)
    spec = yaml.safe_load(text.read_text("utf-8"))["spec"]
    assert "https://acme.example/me" == spec["endpoints"]["userInfoUrl"]
    assert "acme:user:{user.id}" == spec["owner"]["identity"]["user"]["template"]
