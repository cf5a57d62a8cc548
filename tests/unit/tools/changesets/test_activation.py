"""A commit becomes the broker's configuration at `step.config`, and not before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker import Broker, BrokerError, check_config, open_broker
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.clock import SystemClock
from oauthbroker.model.settings import KeySource
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.memory import MemoryStore
from oauthbroker.tools.calling.registry import Registry
from oauthbroker.tools.changesets.activation import Activation, allowed_files, opened_activation
from oauthbroker.tools.changesets.changesets import Commit
from oauthbroker.tools.changesets.editor import SwarmBundleTool
from oauthbroker.tools.orchestration.plan import plans_from
from oauthbroker.tools.types.audit_types import BundleActivated
from oauthbroker.tools.types.catalog import Catalog
from tests.kit.agent_bundle import AGENTS, BROKER, FILES
from tests.unit.tools.changesets.repositories import OWNER, Desk, bare_repository

BESIDE = r"store\.root, a file of keys, the API's socket or a database of a plug-in shares a parent folder"
LISTS = AGENTS.replace("systemPrompt: planner,", "systemPrompt: planner, changesets: {allow: [agents.yaml, '*.md']},")
LISTS = LISTS.replace("  policy:", "  changesets: {allow: ['*.yaml']}\n  policy:")
STATE = """\
  store: {{root: "{root}"}}
  keys: {{file: "{folder}/keys/broker.kek"}}
"""
APP = """\
---
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {name: mail}
spec:
  provider: github
  flow: authorizationCode
  subjectMode: user
  client: {clientId: {valueFrom: {env: MISSING}}, clientSecret: {valueFrom: {env: MISSING}}}
  scopes: [repo]
"""


@pytest.fixture
def desk(tmp_path):
    return opened(tmp_path, f"{tmp_path}/state/store")


def opened(folder: Path, store_root: str) -> Desk:
    broker = BROKER.replace("LEASE", "60").replace("ATTEMPTS", "5") + STATE.format(root=store_root, folder=folder)
    repository = bare_repository(folder, {**FILES, "agents.yaml": LISTS, "broker.yaml": broker})
    return Desk.of(repository, folder / "bundle" / "system", check_config)


@pytest.fixture
def trail():
    return AuditList()


@pytest.fixture
async def broker(desk, trail):
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=SystemClock())
    async with open_broker(desk.changesets.newest().folder, env={}, store=store, audit=trail) as opened:
        yield opened


def prompt(broker: Broker) -> str:
    return str(broker.bundle.plugins["tools"].of("Agent")["planner"].spec.system_prompt)


def commit(desk: Desk, broker: Broker, text: str) -> Commit:
    opened = desk.changesets.open(OWNER)
    (opened.folder / "agents.yaml").write_text(text)
    return desk.commit(opened.id, allowed_files(broker.bundle.plugins["tools"], "default", "planner"))


@pytest.mark.rule("004-12.4-5")
async def test_a_commit_is_in_use_after_the_next_safe_point_and_not_before(desk, broker, trail):
    activation = Activation(broker, desk.changesets, desk.changesets.newest())
    assert not await activation.at_step_config()
    assert "ok" == commit(desk, broker, LISTS.replace("systemPrompt: planner", "systemPrompt: changed")).status
    assert "planner" == prompt(broker)
    assert [True, False] == [await activation.at_step_config() for _ in range(2)]
    assert "changed" == prompt(broker)
    activated = [vars(each) for each in trail.entries if isinstance(each, BundleActivated)]
    assert [{"revision": desk.changesets.newest().ref}] == activated


async def test_a_revision_that_the_broker_refuses_leaves_the_one_before_and_a_later_one_is_taken(desk, broker):
    activation = Activation(broker, desk.changesets, desk.changesets.newest())
    assert "ok" == commit(desk, broker, LISTS + APP).status
    assert [False, False] == [await activation.at_step_config() for _ in range(2)]
    assert ("planner", "red") == (prompt(broker), broker.health().status)
    commit(desk, broker, LISTS.replace("systemPrompt: planner", "systemPrompt: fixed"))
    assert await activation.at_step_config()
    assert ("fixed", "ok") == (prompt(broker), broker.health().status)


async def test_a_runtime_that_starts_with_a_refused_revision_opens_the_last_that_ran(desk, broker, caplog):
    first = desk.changesets.newest()

    def opens(folder: Path) -> Any:
        store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=SystemClock())
        return open_broker(folder, env={}, store=store, audit=AuditList())

    assert "ok" == commit(desk, broker, LISTS + APP).status
    with pytest.raises(BrokerError):
        await opened_activation(desk.changesets, opens).__aenter__()
    desk.changesets.ran(first.ref, ("Swarm/default", "planner"))
    async with opened_activation(desk.changesets, opens) as (again, activation):
        assert ("planner", first.ref) == (prompt(again), activation.active)
        block = activation.block
        assert block is not None
        assert desk.changesets.newest().ref == block["revision"]
        assert not await activation.at_step_config()
    assert "is refused" in caplog.text


@pytest.mark.parametrize("place", ["../store", "{folder}/bundle/store", "{folder}/bundle/system/worktrees/store"])
async def test_a_store_that_would_lie_beside_the_changesets_is_refused(tmp_path, place):
    """As a path of the bundle, `../store` lies among the revisions, as the default does."""
    desk = opened(tmp_path, place.format(folder=tmp_path))
    newest, store = desk.changesets.newest(), MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=SystemClock())
    async with open_broker(newest.folder, env={}, store=store, audit=AuditList()) as broker:
        with pytest.raises(ValueError, match=BESIDE):
            Activation(broker, desk.changesets, newest)


VAULT = KeySource("vault", "transit", {"tokenFile": "{folder}/bundle/token"})
FURTHER = {
    "the token of a key service": {"key_service": VAULT},
    "a further key": {"other_keys": (KeySource("file", "{folder}/bundle/old.kek"),)},
    "the token of a further key": {"other_keys": (KeySource("awsKms", "arn"), VAULT)},
}


def with_keys_in(broker: Broker, folder: Path, named: dict[str, Any]) -> Any:
    """A broker whose further keys lie in a folder."""

    def placed(source: KeySource) -> KeySource:
        options = {name: value.format(folder=folder) for name, value in source.options.items()}
        return KeySource(source.kind, source.name.format(folder=folder), options)

    keys: dict[str, Any] = {
        name: tuple(map(placed, it)) if isinstance(it, tuple) else placed(it) for name, it in named.items()
    }
    settings = replace(broker.bundle.settings, store_root="/elsewhere/store", key_file="/elsewhere/kek", **keys)
    return SimpleNamespace(bundle=replace(broker.bundle, settings=settings))


@pytest.mark.parametrize("named", FURTHER.values(), ids=FURTHER)
async def test_no_key_and_no_token_of_a_key_service_lies_beside_the_changesets_or_is_seen_by_tools(desk, broker, named):
    folder = desk.changesets.root.parent.parent
    keyed = with_keys_in(broker, folder, named)
    with pytest.raises(ValueError, match=BESIDE):
        Activation(keyed, desk.changesets, desk.changesets.newest())
    (plan,) = plans_from(keyed).values()
    hidden = set(plan.agents["planner"]["hidden"])
    assert {"/elsewhere/store", "/elsewhere/kek", *keyed.bundle.settings.secret_files.values()} <= hidden


@pytest.mark.rule("004-6.4-3")
async def test_the_lists_are_those_of_the_resources_and_without_lists_nothing_is_allowed(broker):
    resources = broker.bundle.plugins["tools"]
    lists = allowed_files(resources, "default", "planner")
    assert ((["*.yaml"]), ["agents.yaml", "*.md"]) == (list(lists.swarm), list(lists.agent))
    assert ["notes.md"] == [each.file for each in lists.rejected(["agents.yaml", "notes.md"])]
    assert ["agents.yaml"] == [
        each.file for each in allowed_files(resources, "default", "writer").rejected(["agents.yaml"])
    ]


def test_both_exports_are_in_the_catalog_once_they_are_registered(desk, broker):
    registry = Registry()
    SwarmBundleTool(
        desk.changesets, lambda agent: allowed_files(broker.bundle.plugins["tools"], "default", agent), broker.audit
    ).register(registry)
    catalog: Catalog = registry.catalog([])
    assert "swarmBundle__openChangeset" in catalog
    assert "swarmBundle__commitChangeset" in catalog


MOVED = LISTS.replace("entryAgent: Agent/planner", "entryAgent: Agent/writer")
GONE = {
    "an agent that may change the bundle": (MOVED, MOVED.replace("[Agent/planner, ", "["), "planner"),
    "the entry agent": (MOVED, LISTS.replace(", Agent/writer]", "]"), "writer"),
    "a swarm": (LISTS + "# more\n", LISTS.replace("metadata: {name: default}", "metadata: {name: other}"), "planner"),
}


@pytest.mark.parametrize("gone", GONE)
async def test_a_commit_that_takes_an_agent_out_of_its_swarm_is_rejected_and_names_it(desk, broker, gone):
    first, second, agent = GONE[gone]
    assert "ok" == commit(desk, broker, first).status
    answer = commit(desk, broker, second)
    wanted = f"Swarm/default lacks Agent/{agent}, whose conversations would be refused: list it in spec.agents"
    assert ("rejected", [wanted]) == (answer.status, answer.problems)


async def test_a_commit_may_take_out_an_agent_that_is_no_entry_and_may_not_change_the_bundle(desk, broker):
    assert "ok" == commit(desk, broker, LISTS.replace(", Agent/writer]", "]")).status
