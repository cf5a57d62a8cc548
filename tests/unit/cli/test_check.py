"""`oauthbroker check`: its output on each stream, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from oauthbroker.cli.check import check_command
from tests.unit.config.bundles import APP, BROKER, CANARY, CONNECTOR, GLOBAL, TOOL, edited, write
from tests.unit.config.refusals import LOGIN

APPLICATION = typer.Typer()
APPLICATION.command("check")(check_command)
EXAMPLE = Path(__file__).parents[3] / "config"
PLAIN = {"NO_COLOR": "1", "COLUMNS": "80", "TERM": "dumb"}


def check(*arguments: str | Path, **env: str | None) -> Result:
    return CliRunner().invoke(APPLICATION, [str(it) for it in arguments], env={**PLAIN, **env})


def test_a_fine_configuration_is_described(tmp_path: Path):
    folder = write(tmp_path / "b", app=APP, shared=GLOBAL, tool=TOOL, connector=CONNECTOR)
    result = check(folder, ACME_SECRET="x", CHAT_TOKEN="y")
    assert 0 == result.exit_code
    assert "Secret/slack client_secret" in result.stderr
    assert "ACME_SECRET" not in result.stderr
    for line in (
        "acme  acme, user",
        "  account      acme:user:{user.id} (tokenResponse)",
        "  redirect URI http://127.0.0.1:8420/oauth/callback/acme",
        "  scopes       read write",
        "shared  slack, global",
        "Read at start:",
        "  Secret/slack client_secret",
        "  environment ACME_SECRET",
    ):
        assert line in result.stdout.splitlines()
    assert ["Tool/hammer:hit", "acme", "read"] in [line.split() for line in result.stdout.splitlines()]
    assert f"{folder} is valid: 2 apps, 3 callers." in result.stdout


def test_a_redirect_uri_is_never_broken_into_two(tmp_path: Path):
    path = "/oauth/callback/" + "a-rather-long-name-" * 8 + "x"
    result = check(write(tmp_path / "b", app=edited(APP, ("/oauth/callback/acme", path))))
    assert f"  redirect URI http://127.0.0.1:8420{path}" in result.stdout.splitlines()


def test_an_app_to_which_no_browser_comes_back_names_its_flow_and_no_redirect_uri(tmp_path: Path):
    ends = ("  endpoints:\n", "  endpoints:\n    deviceAuthorizationUrl: https://acme.example/device\n")
    folder = write(tmp_path / "b", app=edited(APP, ("authorizationCode", "deviceCode"), ends))
    said = check(folder).stdout
    assert "  flow         deviceCode" in said.splitlines()
    assert "redirect URI" not in said
    [app] = json.loads(check(folder, "--json").stdout)["apps"]
    assert ("deviceCode", None) == (app["flow"], app["redirectUri"])


def test_an_app_with_client_credentials_has_no_account(tmp_path: Path):
    start = APP.index("  redirect:")
    machine = edited(
        APP[:start], ("authorizationCode", "clientCredentials"), ("subjectMode: user", "subjectMode: global")
    )
    folder = write(tmp_path / "b", app=machine)
    said = check(folder).stdout.splitlines()
    assert {"  account      the client itself, no person", "  flow         clientCredentials"} <= set(said)
    [app] = json.loads(check(folder, "--json").stdout)["apps"]
    assert (None, {}, None) == (app["binding"], app["identity"], app["redirectUri"])


@pytest.mark.case("95")
def test_every_problem_is_printed_and_the_status_is_two(tmp_path: Path):
    bad = edited(APP, ("[read, write]", f"[read, '{CANARY} x']"), ("  flow: authorizationCode", "  flow: deviceCode"))
    folder = write(tmp_path / "b", app=bad)
    instead = "Write endpoints.deviceAuthorizationUrl, or flow: authorizationCode."
    result = check(folder)
    assert (2, "") == (result.exit_code, result.stdout)
    assert [
        f"{folder}/app.yaml:6:9 spec.flow: deviceCodeUnsupported: no device endpoint is known here. {instead}",
        f"{folder}/app.yaml:14:18 spec.scopes[1]: Not a scope. Write one scope an item, no spaces, quotes or commas.",
        "2 problems; nothing of this configuration was used.",
    ] == result.stderr.splitlines()
    assert CANARY not in result.output


def test_a_variable_that_is_not_set_is_a_warning_and_with_strict_a_problem(tmp_path: Path):
    folder = write(tmp_path / "b", app=APP)
    said = f"{folder}/app.yaml:10:19 spec.client.clientSecret: Environment ACME_SECRET is not set"
    lenient, strict = check(folder, ACME_SECRET=None), check(folder, "--strict", ACME_SECRET="")
    assert 0 == lenient.exit_code
    at = f"{folder}/app.yaml:10:19"
    expected = ["", "Not set here:", f"  environment ACME_SECRET  ({at})", "Set variables where the broker starts."]
    assert expected == lenient.stderr.splitlines()
    assert lenient.output.endswith(lenient.stderr), "the end of the output"
    assert 2 == strict.exit_code
    assert strict.stderr.startswith(said)
    assert 0 == check(folder, "--strict", ACME_SECRET="x").exit_code


def test_a_check_that_is_off_is_reported(tmp_path: Path):
    weak = edited(
        BROKER,
        ("https://broker.example", "http://127.0.0.1:8420"),
        ("  listen:", "  weaken: [plainHttpProvider]\n  allowPlainSecrets: dev\n  listen:"),
    )
    plain = edited(APP, ("{valueFrom: {env: ACME_SECRET}}", f"{{value: {CANARY}}}"))
    result = check(write(tmp_path / "b", app=plain, broker=weak))
    assert [
        "warning: a check is off: allowPlainSecrets",
        "warning: a check is off: plainHttpProvider",
    ] == result.stderr.splitlines()
    assert CANARY not in result.output


def test_json_says_the_same(tmp_path: Path):
    fine = check(write(tmp_path / "a", app=APP, tool=TOOL), "--json", ACME_SECRET=None)
    answer: Any = json.loads(fine.stdout)
    assert (0, "", True, []) == (fine.exit_code, fine.stderr, answer["ok"], answer["problems"])
    assert "http://127.0.0.1:8420/oauth/callback/acme" == answer["apps"][0]["redirectUri"]
    assert {"from": "tokenResponse", "template": "acme:user:{user.id}"} == answer["apps"][0]["identity"]["user"]
    assert {"name": "Tool/hammer:hit", "app": "acme", "scopes": ["read"]} in answer["callers"]
    assert ["environment ACME_SECRET"] == answer["needs"] == answer["notSet"]
    assert "spec.client.clientSecret" == answer["warnings"][0]["path"]

    bad = check(write(tmp_path / "b", app=edited(APP, ("authorizationCode", "deviceCode"))), "--json")
    answer = json.loads(bad.stdout)
    assert (2, "", False) == (bad.exit_code, bad.stderr, answer["ok"])
    assert [("deviceCodeUnsupported", 6, 9)] == [(it["code"], it["line"], it["column"]) for it in answer["problems"]]


def test_what_an_app_does_its_own_way_is_told(tmp_path: Path):
    own = edited(
        APP,
        ("{callbackPath", "{uriName: Acme-PRD-1, callbackPath"),
        (
            "  scopes: [read",
            "  quirks: {codeParam: acme_code, tokenScheme: '', tokenRequestFormat: query}\n  scopes: [read",
        ),
    )
    posting = edited(own, ("  client:\n", "  client:\n    authMethod: client_secret_post\n"))
    for app, what in ((own, "refresh tokens and codes"), (posting, "refresh tokens and codes and the client's secret")):
        lines = check(write(tmp_path / what[-1], app=app), ACME_SECRET="x").stdout.splitlines()
        assert "  sent as      Acme-PRD-1, the name under which the provider knows the redirect URI" in lines
        assert "  quirks       codeParam tokenRequestFormat tokenScheme" in lines
        assert f"  careful      {what} stand in addresses of the token endpoint, which its provider may log" in lines
        [said] = json.loads(check(tmp_path / what[-1], "--json").stdout)["apps"]
        assert ("Acme-PRD-1", ["codeParam", "tokenRequestFormat", "tokenScheme"]) == (
            said["redirectUriName"],
            said["quirks"],
        )
    plain = check(write(tmp_path / "plain", app=APP), ACME_SECRET="x").stdout
    assert not any(f"  {word} " in plain for word in ("quirks", "careful", "sent as"))


def test_what_a_preset_is_not_sure_of_is_reported_and_refuses_nothing(tmp_path: Path):
    folder = write(tmp_path / "b", shared=GLOBAL)
    result = check(folder)
    assert (0, False) == (result.exit_code, "warning" in result.stderr)
    [line] = [line for line in result.stdout.splitlines() if line.startswith("  unverified")]
    [shared] = json.loads(check(folder, "--json").stdout)["apps"]
    count = len(shared["unverified"])
    facts = "1 fact" if count == 1 else f"{count} facts"
    assert count
    assert f"  unverified   {facts} of its preset (oauthbroker providers show slack)" == line
    assert [] == [path for path in shared["unverified"] if path.startswith(("notes", "identity.user", "modes"))]
    own = check(write(tmp_path / "own", app=APP), ACME_SECRET="x")
    assert "unverified" not in own.stdout


def test_a_scope_that_is_no_right_is_told_where_it_belongs(tmp_path: Path):
    folder = write(tmp_path / "b", app=edited(APP, ("scopes: [read, write]", "scopes: [read, write, offline_access]")))
    result = check(folder, ACME_SECRET="x")
    assert (0, "") == (result.exit_code, result.stderr)
    [line] = [line for line in result.stdout.splitlines() if "offline_access under" in line]
    assert "quirks.alwaysScopes" in line
    assert "alwaysScopes" not in check(write(tmp_path / "own", app=APP), ACME_SECRET="x").stdout


def test_nothing_to_read_is_a_problem_too(tmp_path: Path):
    result = check(tmp_path / "nowhere")
    assert 2 == result.exit_code
    assert "No such file or directory." in result.stderr


def test_it_checks_the_example_by_default(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(EXAMPLE.parent)
    result = check()
    assert 0 == result.exit_code
    assert "config is valid: 6 apps, 4 callers." in result.stdout


def test_checking_leaves_nothing_behind(tmp_path: Path):
    folder = write(tmp_path / "b", app=APP, broker=edited(BROKER, ("  listen:", "  store: {root: ../here}\n  listen:")))
    before = sorted(tmp_path.rglob("*"))
    assert 0 == check(folder).exit_code
    assert before == sorted(tmp_path.rglob("*"))


def test_the_brokers_own_login_is_described_with_what_to_register(tmp_path: Path):
    folder = write(tmp_path / "b", app=APP, broker=BROKER + LOGIN)
    result = check(folder, "--strict", ACME_SECRET="x", LOGIN_SECRET="y")
    assert (0, "") == (result.exit_code, result.stderr)
    lines = result.stdout.splitlines()
    at = lines.index("login  of the broker's own")
    assert [
        "  account      corp:user:{sub} (idToken)",
        "  redirect URI https://broker.example/login/callback",
    ] == lines[at + 1 : at + 3]
    assert "  environment LOGIN_SECRET" in lines
    reported = json.loads(check(folder, "--json", ACME_SECRET="x").stdout)
    expected = {"redirectUri": "https://broker.example/login/callback", "subject": "corp:user:{sub}"}
    assert expected == reported["login"]
    assert ["spec.login.client.clientSecret"] == [warning["path"] for warning in reported["warnings"]]
    assert json.loads(check(write(tmp_path / "none", app=APP), "--json").stdout)["login"] is None


def test_the_address_to_register_for_operators_is_named(tmp_path: Path):
    operators = '  admin: {operators: {subjects: ["corp:user:7"]}}\n'
    folder = write(tmp_path / "b", app=APP, broker=BROKER + LOGIN + operators)
    address = "https://broker.example/admin/callback"
    assert f"  operators'   {address}" in check(folder).stdout.splitlines()
    assert address == json.loads(check(folder, "--json").stdout)["login"]["operatorsRedirectUri"]


def test_what_other_programs_read_is_listed_as_left_alone(tmp_path: Path):
    pods = [f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p{number}}}\n" for number in range(25)]
    folder = write(tmp_path / "b", app=APP, other="---\n".join(pods))
    lines = check(folder).stdout.splitlines()
    at = lines.index("Ignored resources of other programs:")
    assert f"  Pod/p0  v1  {folder}/other.yaml:1:1" == lines[at + 1]
    assert "  and 5 more, all listed with --json" == lines[at + 21]
    reported = json.loads(check(folder, "--json").stdout)["ignored"]
    assert [f"p{number}" for number in range(25)] == [each["name"] for each in reported]
    assert "Ignored" not in check(write(tmp_path / "c", app=APP)).stdout


def test_a_file_that_all_users_may_write_to_is_a_warning_and_with_strict_a_problem(tmp_path: Path):
    folder = write(tmp_path / "b", app=APP)
    (folder / "app.yaml").chmod(0o666)
    lenient, strict = check(folder, ACME_SECRET="x"), check(folder, "--strict", ACME_SECRET="x")
    said = f"{folder}/app.yaml: All users of this machine may write to it. Run chmod o-w {folder}/app.yaml."
    assert (0, True) == (lenient.exit_code, f"warning: {said}" in lenient.stderr)
    assert (2, True) == (strict.exit_code, said in strict.stderr)


def test_a_reference_that_nothing_reads_is_a_warning_and_with_strict_a_problem(tmp_path: Path):
    agent = "apiVersion: goondan.ai/v1\nkind: Agent\nspec: {auth: {oauthAppRef: OAuthApp/acme}}\n"
    folder = write(tmp_path / "b", app=APP, agent=agent)
    lenient, strict = check(folder, ACME_SECRET="x"), check(folder, "--strict", ACME_SECRET="x")
    said = f"{folder}/agent.yaml:3:15 spec.auth.oauthAppRef: An oauthAppRef that nothing reads"
    assert (0, True) == (lenient.exit_code, f"warning: {said}" in lenient.stderr)
    assert (2, True) == (strict.exit_code, said in strict.stderr)


def test_parts_of_a_preset_that_an_app_replaces_are_named(tmp_path: Path):
    """On stderr with what to write, in `--json` by name; `--strict` refuses nothing for it."""
    own = edited(APP, ("provider: acme", "provider: google"))
    folder = write(tmp_path / "b", app=own)
    result = check(folder, "--strict", ACME_SECRET="x")
    assert 0 == result.exit_code
    [line] = [it for it in result.stderr.splitlines() if "these of the preset google are not used" in it]
    assert line.startswith(f"warning: {folder}/app.yaml:11:3 spec.endpoints: The app has endpoints of its own, so")
    assert "Write those that your installation has" in line
    [app] = json.loads(check(folder, "--json").stdout)["apps"]
    assert {"api.hosts", "endpoints.issuer", "endpoints.jwksUrl", "endpoints.revokeUrl", "endpoints.userInfoUrl", "endpoints.deviceAuthorizationUrl"} == set(app["dropped"])  # fmt: skip
    assert all(name in line for name in app["dropped"])


DESK = """\
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {name: desk}
spec:
  provider: zendesk
  connectParams: {subdomain: {title: Your Zendesk address}}
  flow: authorizationCode
  subjectMode: user
  client: {clientId: agents, clientSecret: {valueFrom: {env: ACME_SECRET}}}
  scopes: [read]
  owner: {binding: localOperator}
"""


def test_several_connections_of_a_subject_are_told(tmp_path: Path):
    one = ("  connectParams", "  params: {subdomain: acme}\n  accounts: several\n  #")
    folder = write(tmp_path / "b", desk=DESK, mail=edited(DESK, one, ("name: desk", "name: mail")))
    done = check(folder, ACME_SECRET="x")
    assert 0 == done.exit_code, done.stderr
    assert "  parameter    subdomain within .zendesk.com" in done.stdout.splitlines()
    assert "  accounts     several for a subject" in done.stdout.splitlines()
    apps = json.loads(check(folder, "--json", ACME_SECRET="x").stdout)["apps"]
    assert [("desk", ["subdomain"]), ("mail", [])] == [(app["name"], app["connectParams"]) for app in apps]
    assert [True, True] == [app["severalAccounts"] for app in apps]


@pytest.mark.parametrize("url", ["mysql://me:p@db/tokens", "postgres://db/tokens", "host=db password=a://b"])
def test_the_url_of_another_database_is_refused_without_a_connection(tmp_path: Path, url: str):
    stored = BROKER.replace("spec:", "spec:\n  store: {url: {valueFrom: {env: DATABASE}}}")
    result = check(write(tmp_path / "b", broker=stored, app=APP), DATABASE=url, ACME_SECRET="x")
    code = result.exit_code
    assert code == (2 if "mysql" in url else 0), result.stderr
    said = "spec.store.url: Environment DATABASE is no URL of PostgreSQL. Begin it with postgresql://."
    assert (said in result.stderr) is (code == 2)
    assert "me:p" not in result.stderr
