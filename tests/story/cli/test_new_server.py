"""`oauthbroker init --server`: a folder that serves the same apps, with a store, a key and an API key of its own."""

from __future__ import annotations

import asyncio
import configparser
import io
import json
import re
import stat
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from oauthbroker import Secret, open_broker
from oauthbroker.cli import run
from oauthbroker.cli.server_files import MONITORING
from oauthbroker.config import load
from oauthbroker.personal.app_files import SECRET_KEY, Answers, write_app, write_broker
from oauthbroker.personal.local_broker import open_local_vault
from oauthbroker.personal.places import Places
from oauthbroker.testing import Authority, Canaries
from tests.kit import postgres
from tests.kit.cli import Desk

ROOT = Path(__file__).parents[3]
HEAD = "apiVersion: agents.example.io/v1alpha1\nkind: OAuthApp\nmetadata: {{name: {}}}\n"
APP = (
    HEAD.format("github")
    + """\
spec:
  provider: github
  flow: authorizationCode
  subjectMode: user
  accounts: several
  owner: {binding: localOperator}
  client:
    clientId: {valueFrom: {env: GITHUB_CLIENT_ID}}
    clientSecret: {valueFrom: {secretRef: {ref: Secret/github, key: client_secret}}}
  scopes: [repo]
"""
)


@pytest.fixture
def source(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A person's bundle with one app, whose secret is in the store."""
    monkeypatch.setenv("GITHUB_CLIENT_ID", "an id # of mine")
    desk.write("github", APP)
    assert 0 == desk.type("init").code
    assert 0 == desk.type("secrets", "set", "github", "client_secret", stdin="the-secret-of-github").code
    assert 0 == desk.type("init", "--server", "team").code
    for file in ("keys/broker.kek", "api-key", ".env"):
        desk.canaries.excuse(desk.folder / "team" / file)
    return desk


async def served(config: Path, key: str) -> tuple[str, frozenset[str]]:
    """Return the app's secret and the roles of the API key, as a broker over the bundle has them."""
    async with open_broker(config, background=False) as broker:
        client = broker.bundle.apps["github"].client
        assert ("an id # of mine", True) == (client.client_id, client.client_secret is not None)
        return client.client_secret.reveal() if client.client_secret else "", (await broker.api_keys.check(key)).roles


async def test_the_folder_serves_the_same_apps_with_their_secrets_and_a_key_of_its_own(source: Desk) -> None:
    team = source.folder / "team"
    key = (team / "api-key").read_text("ascii").strip()
    assert ("the-secret-of-github", frozenset({"runtime"})) == await served(team / "config", key)
    app = load(team / "config").apps["github"].app
    assert ("providerIdentity", False) == (app.owner.binding, app.has_accounts), "a team's users confirm themselves"
    for name in ("api-key", ".env", "keys/broker.kek"):
        assert 0o600 == stat.S_IMODE((team / name).stat().st_mode), name
    assert (source.folder / "keys" / "broker.kek").read_bytes() != (team / "keys" / "broker.kek").read_bytes()
    text = "".join(path.read_text("utf-8") for path in team.rglob("*.yaml"))
    assert "the-secret-of-github" not in text
    assert key not in text


def test_the_output_has_no_secret_and_a_folder_with_files_is_refused(source: Desk) -> None:
    done = source.type("init", "--server", "team")
    assert (2, True) == (done.code, "has files already. Name a new folder." in done.err)
    done = source.type("init", "--server", "other", "--json")
    assert {"apps": ["github"], "missingSecrets": [], "unsetVariables": []}.items() <= json.loads(done.out).items()
    for file in ("keys/broker.kek", "api-key", ".env"):
        source.canaries.excuse(source.folder / "other" / file)
    key = (source.folder / "other" / "api-key").read_text("ascii").strip()
    assert key not in done.out + done.err


def test_a_folder_that_cannot_be_made_is_told(desk: Desk) -> None:
    (desk.folder / "a-file").touch()
    refused = desk.type("init", "--server", "a-file/team")
    assert (2, True) == (refused.code, "cannot be made. Name a folder where you may write" in refused.err)


async def test_without_a_bundle_here_it_takes_the_apps_of_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canaries: Canaries
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))  # never the data folder of who runs the tests
    places = Places.of_user()
    places.prepare()
    answers = Answers(provider="github", client_id="an-id", secret=Secret("the-secret-of-github"), scopes=("repo",))
    write_broker(places)
    write_app(places, "github", answers.resource("github"))
    async with open_local_vault(places) as vault:
        await vault.secrets.put("github", SECRET_KEY, Secret("the-secret-of-github"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OAUTHBROKER_STORE_ROOT", str(tmp_path / "of a server"))
    said = io.StringIO()
    with redirect_stdout(said):
        assert 0 == await asyncio.to_thread(run, ["config", "show"])
    assert "binding: localOperator" in said.getvalue()
    with redirect_stdout(io.StringIO()):
        assert 0 == await asyncio.to_thread(run, ["init", "--server", "team"])
        assert 2 == await asyncio.to_thread(run, ["init", "--server", "other", "--config", "confg"])
    for file in ("keys/broker.kek", "api-key", ".env"):
        canaries.excuse(tmp_path / "team" / file)
    assert not (tmp_path / "other").exists()
    monkeypatch.delenv("OAUTHBROKER_STORE_ROOT")
    async with open_broker(tmp_path / "team" / "config", background=False) as broker:
        app = broker.bundle.apps["github"]
    assert ("providerIdentity", Secret("the-secret-of-github")) == (app.owner.binding, app.client.client_secret)


@pytest.mark.parametrize("at_broker", [True, False])
def test_the_certificates_of_a_relative_path_come_along(desk: Desk, tmp_path: Path, at_broker: bool) -> None:
    pem = Authority(desk.folder, "corp").file
    line = f"spec:\n  providerCa: ../{pem.name}\n"
    broker, app = desk.folder / "config" / "broker.yaml", APP
    if at_broker:
        broker.write_text(broker.read_text("utf-8").replace("spec:\n", line, 1), "utf-8")
    else:
        app = APP.replace("spec:\n", line, 1)
    desk.write("github", app)
    shown = desk.type("config", "show")
    assert f"providerCa: {pem}\n" in shown.out, "read elsewhere, it names the same file"
    text = pem.read_text("utf-8")
    assert 0 == desk.type("init", "--server", "team").code
    for file in ("keys/broker.kek", "api-key", ".env"):
        desk.canaries.excuse(desk.folder / "team" / file)
    pem.unlink()
    (desk.folder / "team").rename(tmp_path / "moved")  # as into a container
    assert text.strip() in load(tmp_path / "moved" / "config").apps["github"].app.provider_ca


def test_the_way_out_of_a_company_comes_along(desk: Desk, tmp_path: Path) -> None:
    pem = Authority(desk.folder, "corp").file
    proxy = f"  outgoingProxy: {{url: 'https://proxy.corp.example:3128', ca: ../{pem.name}, resolve: proxy}}\n"
    broker = desk.folder / "config" / "broker.yaml"
    broker.write_text(broker.read_text("utf-8").replace("spec:\n", f"spec:\n{proxy}", 1), "utf-8")
    desk.write("github", APP)
    assert 0 == desk.type("init", "--server", "team").code
    for file in ("keys/broker.kek", "api-key", ".env"):
        desk.canaries.excuse(desk.folder / "team" / file)
    text = pem.read_text("utf-8")
    pem.unlink()
    (desk.folder / "team").rename(tmp_path / "moved")
    found = load(tmp_path / "moved" / "config").settings.outgoing_proxy
    assert found is not None
    assert ("proxy.corp.example", True, True) == (found.host, found.resolves, text.strip() in found.ca)


def test_a_source_that_is_refused_leaves_no_folder(desk: Desk) -> None:
    desk.write("github", APP.replace("github", "githib"))
    done = desk.type("init", "--server", "team")
    assert (2, False) == (done.code, (desk.folder / "team").exists())


def test_the_rules_of_alerts_and_the_dashboard_are_written_and_named(source: Desk) -> None:
    team, ours = source.folder / "team", ROOT / "deploy" / "monitoring"
    written = {each.name: each.read_text("utf-8") for each in (team / "monitoring").iterdir()}
    assert {each.name: each.read_text("utf-8") for each in ours.iterdir()} == written
    assert ours == MONITORING, "in a repository; an installed package has its own"


def test_the_files_that_start_it_fit_their_schemas_and_its_places(source: Desk) -> None:
    team = source.folder / "team"
    compose: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:\?[^}]*\}", "x", (team / "compose.yaml").read_text()))
    compose.pop("name")  # the schema is older than this member
    schema = json.loads((ROOT / "tests/vectors/compose.json").read_text("utf-8"))
    assert [] == [each.message for each in jsonschema_rs.validator_for(schema).iter_errors(compose)]
    broker = compose["services"]["broker"]
    places = {each.partition(":")[0] for each in broker["volumes"]}
    assert all((team / place).is_dir() for place in places)
    env = {name: str(value) for name, value in broker["environment"].items()}
    assert "0.0.0.0" == load(team / "config", env).settings.listen_host
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((team / "oauthbroker.service").read_text("utf-8"))
    assert unit["Service"]["ExecStart"].endswith(f'-m oauthbroker serve --config "{team}/config"')
    page = re.search(r"\[Service\]\n(.*?)\n\n", (ROOT / "docs/how-to/production.md").read_text("utf-8"), re.DOTALL)
    assert page
    kept_apart = {
        "EnvironmentFile",
        "LoadCredential",
        "StateDirectory",
        "StateDirectoryMode",
        "RuntimeDirectory",
        "RuntimeDirectoryMode",
    }
    assert {line.partition("=")[0] for line in page[1].splitlines()} - kept_apart <= set(unit["Service"])


@pytest.mark.slow
async def test_the_compose_file_moves_the_store_into_the_database(
    source: Desk, postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = source.folder / "team"
    postgres_server.empty_database("composed")
    monkeypatch.setenv("OAUTHBROKER_STORE_URL", postgres_server.url("composed").reveal())
    (words,) = re.findall(r"docker compose run --rm broker (.*)", (team / "compose.yaml").read_text("utf-8"))
    monkeypatch.chdir(team)  # the working folder of the image
    done = await asyncio.to_thread(source.type, *words.split())
    assert 0 == done.code, done
    key = (team / "api-key").read_text("ascii").strip()
    assert ("the-secret-of-github", frozenset({"runtime"})) == await served(team / "config", key)


@pytest.mark.parametrize("port", [None, 28420])
def test_the_port_of_the_source_is_kept_and_the_callbacks_are_named(desk: Desk, port: int | None) -> None:
    broker, used = desk.folder / "config" / "broker.yaml", port or 8420
    found = yaml.safe_load(broker.read_text("utf-8"))
    found["spec"] |= {"publicBaseUrl": f"http://127.0.0.1:{used}", "listen": {"host": "127.0.0.1", "port": used}}
    broker.write_text(yaml.safe_dump(found), "utf-8")
    desk.write("github", APP)
    done = desk.type("init", "--server", "team")
    for file in ("keys/broker.kek", "api-key", ".env"):
        desk.canaries.excuse(desk.folder / "team" / file)
    assert f"Its callback, registered at the provider: http://127.0.0.1:{used}/oauth/callback/github" in done.out
    settings = load(desk.folder / "team" / "config").settings
    assert (f"http://127.0.0.1:{used}", used) == (settings.public_base_url, settings.listen_port)
    assert f'"127.0.0.1:{used}:{used}"' in (desk.folder / "team" / "compose.yaml").read_text("utf-8")
