"""The package of docs/plugins.md, installed as the page says: its command, its kinds, its tokens."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import AuthorizationRequired, open_broker
from oauthbroker.cli import run
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.plugins import Plugin, PluginAuditEntry, PluginResource, PluginResources
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.docs import code_blocks, page_text
from tests.kit.plugins_installed import distribution, on_path
from tests.kit.running_broker import ALICE, BOB, Harness, running, turn, user_app
from tests.story.api.kit import Callers
from tests.story.signed_in import ADMIN, operator_browser

BROKER, SHELF = code_blocks("docs/plugins.md", "yaml")
APP = """\
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {name: books}
spec:
  provider: books
  flow: clientCredentials
  subjectMode: global
  client: {clientId: agents, clientSecret: {valueFrom: {env: SECRET}}}
  endpoints: {tokenUrl: "https://books.example/token"}
  scopes: [read]
"""
TOOL = """\
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: reader}
spec: {shelf: Shelf/novels}
"""
NOVELS = PluginResources((PluginResource("Shelf", "novels", None),))
ENV = {"LIBRARY_KEY": "the-key", "SECRET": "the-secret"}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Install the package: the entry points of the TOML block, and each Python block in the file that it names."""
    (toml,) = code_blocks("docs/plugins.md", "toml")
    written = tomllib.loads(toml)
    project: dict[str, Any] = written["project"]
    folder = distribution(tmp_path / "site", project["name"], project["entry-points"]["oauthbroker.plugins"])
    for block in code_blocks("docs/plugins.md"):
        place, _, text = block.removeprefix("# ").partition("\n")
        folder.joinpath(place).parent.mkdir(exist_ok=True)
        folder.joinpath(place).write_text(text, "utf-8")
    pages = folder / "library_plugin" / "pages"
    pages.joinpath("words").mkdir(parents=True)
    for name, language in {"shelves.html": "html", "words/en.json": "json"}.items():
        (text,) = code_blocks("docs/plugins.md", language)
        pages.joinpath(name).write_text(text, "utf-8")
    [(name, [pattern])] = written["tool"]["setuptools"]["package-data"].items()
    carried = {each for each in (folder / name).glob(f"{pattern}/*") if each.is_file()}
    assert {each for each in pages.rglob("*") if each.is_file()} == carried, "a wheel has the pages, too"
    return folder


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    for name, text in {"broker": BROKER, "app": APP, "shelf": SHELF, "tool": TOOL}.items():
        folder.joinpath(f"{name}.yaml").write_text(text, "utf-8")
    return folder


def test_the_command_of_the_page_lists_its_shelves(
    package: Path, config: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(config.parent)
    with on_path(package):
        assert 0 == run(["init"])
        capsys.readouterr()
        assert 0 == run(["shelves"])
        assert "novels\n" == capsys.readouterr().out
        assert 0 == run(["check", "--strict"])


async def test_the_resources_of_the_page_reach_a_broker_with_their_secrets(
    package: Path, config: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(config.parent)
    with on_path(package):
        assert 0 == run(["init"])
        async with open_broker(config, env=ENV, background=False) as broker:
            plugins = broker.bundle.plugins["library"]
    assert ("Novels", "the-key") == (
        plugins.of("Shelf")["novels"].spec.title,
        plugins.of("Shelf")["novels"].secrets["apiKey",].reveal(),
    )
    assert "novels" == plugins.of("Tool")["reader"].spec.shelf.name


@pytest.fixture
async def harness(package: Path, identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    """A broker with the page's plug-in and app."""
    apps, plugins = [user_app(identity_provider, "books")], {"library": NOVELS}
    with on_path(package):
        async with running(identity_provider, apps, clock=test_clock, plugins=plugins) as harness:
            yield harness


async def test_the_route_of_the_page_lends_as_the_user_of_the_turn(harness: Harness):
    api = await Callers.of(harness)
    tool = await api.turn(tools={})
    loan = {"shelf": "novels", "title": "Emma"}
    assert {"lent": False} == (await tool.post("/v1/library/loans", loan)).json()
    asked = await harness.broker.oauth(turn()).get_access_token("books", ["read"])
    assert isinstance(asked, AuthorizationRequired)
    await harness.connect(asked)
    assert {"lent": True} == (await tool.post("/v1/library/loans", loan)).json()
    assert {"lent": False} == (await tool.post("/v1/library/loans", {**loan, "shelf": "comics"})).json()
    assert ["library.BookLent"] == [
        type(it).type_name() for it in harness.audit.entries if isinstance(it, PluginAuditEntry)
    ]
    assert "requestInvalid" == (await tool.post("/v1/library/loans", {"shelf": "novels"})).code
    assert 403 == (await api.runtime.post("/v1/library/loans", loan)).status


async def test_the_page_for_operators_shows_its_shelves(harness: Harness):
    person = await operator_browser(harness)
    page = await person.open(f"{ADMIN}/plugins/library")
    assert (200, True) == (page.status, "Shelves 0 books lent Shelf novels" in page.text)
    assert f"{ADMIN}/plugins/library?shelf=novels" in page.document.links


async def test_the_loans_of_the_page_go_with_their_reader(harness: Harness):
    loans, broker = import_module("library_plugin.loans"), harness.broker
    assert await loans.lend(broker, "Emma", ALICE)
    assert await loans.lend(broker, "Emma", ALICE)
    assert not await loans.lend(broker, "Emma", BOB)
    assert await loans.lend(broker, "Persuasion", BOB)
    assert {"Emma": ALICE, "Persuasion": BOB} == await loans.loans(broker)
    assert (await broker.erase(ALICE)).done
    assert {"Persuasion": BOB} == await loans.loans(broker)
    assert [True, False] == [await loans.take_back(broker, "Persuasion") for _ in range(2)]


async def test_a_plugin_that_the_configuration_does_not_name_has_no_state(harness: Harness):
    with pytest.raises(BrokerError) as refused:
        harness.broker.plugin_state("kitchen")
    assert Code.REQUEST_INVALID is refused.value.code


async def test_the_plugin_of_the_page_follows_a_reload_and_tells_its_findings(harness: Harness):
    assert () == harness.broker.health().problems
    await harness.broker.reload(replace(harness.broker.bundle, plugins={}))
    assert ("library.noShelves",) == harness.broker.health().problems


def test_the_page_names_every_part_of_a_declaration():
    named = set(Plugin.__slots__) - {"name"}
    assert set() == {name for name in named if f"| `{name}` |" not in page_text("docs/plugins.md")}
