"""`quirks.pkce: refused` loads only where something else ties a code to the attempt, and `check` warns of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from oauthbroker.cli.check import app as check
from oauthbroker.config import load
from oauthbroker.providers import presets
from oauthbroker.providers.preset import Preset
from tests.unit.config.bundles import APP, BROKER, edited, refused, write

QUIRK = ("  scopes: [read, write]\n", "  scopes: [read, write]\n  quirks: {pkce: refused}\n")
PUBLIC = ("    clientSecret: {valueFrom: {env: ACME_SECRET}}\n", "    authMethod: none\n")
SECRET_IN_FORM = ("    clientSecret:", "    authMethod: client_secret_post\n    clientSecret:")
LOCAL = (("https://broker.example", "http://127.0.0.1:8420"),)
ENDPOINTS = (
    "  endpoints:\n    authorizationUrl: https://acme.example/authorize\n    tokenUrl: https://acme.example/token\n"
)
IDENTITY = '  owner:\n    identity:\n      user: {from: tokenResponse, template: "acme:user:{user.id}"}\n'


def owner(binding: str, source: str = "tokenResponse") -> tuple[str, str]:
    return IDENTITY, IDENTITY.replace("tokenResponse", source).replace("owner:\n", f"owner:\n    binding: {binding}\n")


ISSUER = ("    tokenUrl: ", "    issuer: https://acme.example\n    tokenUrl: ")
PRESET = (("provider: acme", "provider: google"), (ENDPOINTS, ""))
MCP = (
    ("provider: acme", "provider: mcp\n  mcp: {url: https://acme.example/mcp, issuer: https://acme.example}"),
    (ENDPOINTS, ""),
)
DEVICE = (
    ("flow: authorizationCode", "flow: deviceCode"),
    ("    tokenUrl: ", "    deviceAuthorizationUrl: https://acme.example/device\n    tokenUrl: "),
    ("  redirect: {callbackPath: /oauth/callback/acme}\n", ""),
)


@pytest.mark.case("18", "95")
@pytest.mark.parametrize(
    "what, changes",
    [
        ("a public client has nothing else", (PUBLIC,)),
        ("a public client has nothing else", (PUBLIC, owner("localOperator", "idToken"), ISSUER)),
        ("without PKCE nothing here shows", (owner("localOperator"),)),
        ("without PKCE nothing here shows", (owner("localOperator", "userInfo"), ISSUER)),
        ("it is for a confidential client", (PUBLIC, ("provider: acme", "provider: google"))),
        ("MCP servers need PKCE", MCP),
        ("flow: deviceCode has no PKCE", DEVICE),
        ("Google supports PKCE", PRESET),
        ("a flow that refuses PKCE (oauthbroker providers show google)", PRESET),
    ],
)
def test_it_is_refused_where_it_would_be_unsafe(tmp_path: Path, what: str, changes: tuple[tuple[str, str], ...]):
    error = refused(write(tmp_path / "b", app=edited(APP, QUIRK, *changes), broker=edited(BROKER, *LOCAL)))
    (found,) = [str(it) for it in error.problems if it.path == "spec.quirks.pkce"]
    assert what.lower() in found.lower()


@pytest.mark.parametrize("value", ["never", "none", "optional", "plain", "supported", "true"])
def test_there_is_one_word_for_it(tmp_path: Path, value: str):
    changes = QUIRK[0], QUIRK[1].replace("refused", value)
    assert "spec.quirks.pkce" in str(refused(write(tmp_path / "b", app=edited(APP, changes))))


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (owner("localOperator", "idToken"), ISSUER),
        (("provider: acme", "provider: linkedin"), SECRET_IN_FORM),
    ],
)
def test_it_loads_with_a_secret_and_a_compared_account_or_nonce_and_check_warns(
    tmp_path: Path, changes: tuple[tuple[str, str], ...]
):
    folder = write(tmp_path / "b", app=edited(APP, QUIRK, *changes), broker=edited(BROKER, *LOCAL))
    assert "refused" == load(folder).apps["acme"].app.habits.pkce
    said = CliRunner().invoke(check, [str(folder)])
    assert 0 == said.exit_code
    assert "warning" in said.output
    assert "spec.quirks.pkce: A check is off: authorizations of this app have no PKCE." in said.output
    assert '"pkce": false' in CliRunner().invoke(check, [str(folder), "--json"]).output


def test_an_app_without_it_sends_pkce_and_its_authorizations_do_not_survive_a_change_of_it(tmp_path: Path):
    without = load(write(tmp_path / "b", app=edited(APP, QUIRK))).apps["acme"].app
    usual = load(write(tmp_path / "c", app=APP)).apps["acme"].app
    assert "refused" != usual.habits.pkce
    assert usual.config_digest != without.config_digest


def test_no_preset_can_say_it():
    said = presets()["linkedin"].model_dump(by_alias=True, exclude_unset=True)
    with pytest.raises(ValidationError):
        Preset.model_validate({**said, "pkce": "refused"})


STANDARD = "https://www.linkedin.com/oauth/v2/authorization"
LINKEDIN = (
    ("provider: acme", "provider: linkedin"),
    ("scopes: [read, write]", "scopes: [r_basicprofile]"),
    (IDENTITY, ""),
)
ELSEWHERE = (
    "  endpoints: {authorizationUrl: https://li.example/a, tokenUrl: https://li.example/t,"
    " userInfoUrl: https://li.example/me}\n"
)
LINKEDIN_QUIRK = ("scopes: [r_basicprofile]", "scopes: [r_basicprofile]\n  quirks: {pkce: refused}")
TOLD = f"Write quirks: {{pkce: refused}}, endpoints: {{authorizationUrl: {STANDARD}}} and an authMethod with a secret"


@pytest.mark.parametrize(
    "what, changes",
    [
        ("spec.client: LinkedIn refuses PKCE from a client with a secret.", (SECRET_IN_FORM, (ENDPOINTS, ""))),
        (
            "spec.endpoints.authorizationUrl: LinkedIn refuses PKCE at this address.",
            (SECRET_IN_FORM, (ENDPOINTS, f"  endpoints: {{authorizationUrl: {STANDARD}}}\n")),
        ),
        (
            "spec.endpoints.authorizationUrl: LinkedIn refuses PKCE at this address.",
            (PUBLIC, (ENDPOINTS, f"  endpoints: {{authorizationUrl: {STANDARD}}}\n")),
        ),
    ],
)
def test_check_tells_an_app_how_to_write_the_quirk_where_its_provider_refuses_pkce(
    tmp_path: Path, what: str, changes: tuple[tuple[str, str], ...]
):
    said = CliRunner().invoke(check, [str(write(tmp_path / "b", app=edited(APP, *LINKEDIN, *changes)))])
    assert 0 == said.exit_code
    assert 1 == said.output.count("LinkedIn refuses PKCE")
    assert f"{what} {TOLD}" in said.output
    assert "oauthbroker providers show linkedin" in said.output


def test_a_secret_at_the_preset_of_native_clients_is_told_the_other_flow(tmp_path: Path):
    error = refused(write(tmp_path / "b", app=edited(APP, *LINKEDIN, (ENDPOINTS, ""))))
    (found,) = [str(it) for it in error.problems if it.path == "spec.client.clientSecret"]
    assert TOLD.removeprefix("Write ") in found


@pytest.mark.parametrize(
    "changes",
    [
        (PUBLIC, (ENDPOINTS, "")),
        (SECRET_IN_FORM, (ENDPOINTS, ELSEWHERE)),
        (LINKEDIN_QUIRK, SECRET_IN_FORM, (ENDPOINTS, f"  endpoints: {{authorizationUrl: {STANDARD}}}\n")),
    ],
)
def test_an_app_that_is_right_gets_no_such_word(tmp_path: Path, changes: tuple[tuple[str, str], ...]):
    said = CliRunner().invoke(check, [str(write(tmp_path / "b", app=edited(APP, *LINKEDIN, *changes)))])
    assert 0 == said.exit_code
    assert "refuses PKCE" not in said.output
