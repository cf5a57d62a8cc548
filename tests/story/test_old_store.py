"""A store of an older version: read as it is by what only reads, upgraded by a broker that starts, and then used."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from oauthbroker import open_broker
from oauthbroker.broker import Broker
from oauthbroker.cli import run
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import Bundle
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import Ready
from oauthbroker.observability.logging import json_log
from oauthbroker.repository.upgrade_steps import STEPS
from oauthbroker.store.keys.keyring import Upgrades
from oauthbroker.store.keys.upgrade import names_of
from oauthbroker.testing import TestClock
from oauthbroker.wiring import open_vault
from oauthbroker.wiring.storage import upgrade_state
from tests.kit.old_store import FROZEN, MADE_AT, keyring_file, ring_of, unpack
from tests.kit.running_broker import tree
from tests.kit.samples import app_with, turn_with

BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec:
  publicBaseUrl: https://broker.example
  store: {root: ../store}
  keys: {file: ../test.kek}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    unpack(tmp_path / "place")
    (tmp_path / "place" / "store" / "data" / "locks" / "probe").touch(mode=0o600)  # every broker leaves one
    (tmp_path / "place" / "config").mkdir()
    (tmp_path / "place" / "config" / "broker.yaml").write_text(BROKER)
    return tmp_path / "place"


def settings_of(place: Path) -> Settings:
    return Settings("https://broker.example", store_root=str(place / "store"), key_file=str(place / "test.kek"))


def upgrades_of(place: Path) -> Upgrades | None:
    return ring_of(place / "store", place / "test.kek").upgrades


async def test_an_old_store_works_on_under_a_new_broker(place):
    apps = {name: app_with(name=name, scopes=("read",)) for name in ("mail", "calendar")}
    clock, log = TestClock(MADE_AT), json_log(io.StringIO(), TestClock(MADE_AT))
    bundle = Bundle(settings_of(place), apps)
    async with open_broker(bundle, env={}, clock=clock, log=log, background=False) as broker:
        assert Upgrades(names_of(STEPS)) == upgrades_of(place)
        for app, user in (("mail", "acme:user:1"), ("calendar", "acme:user:1"), ("mail", "acme:user:2")):
            answer = await broker.oauth(turn_with(user=user)).get_access_token(app)
            assert isinstance(answer, Ready), answer
        of_one = [grant async for grant in broker.grants.list(subject="acme:user:1")]
        assert ["calendar", "mail"] == sorted(grant.app for grant in of_one)
        found = [delivery async for delivery in leased(broker)]
        assert ["evt-as-2-auth.granted", "evt-as-5-auth.granted"] == found
        assert ["evt-as-3-auth.granted"] == [letter.id for letter in await broker.dead_letters.dead("planner")]
        assert "runtime" == (await broker.api_keys.check(FROZEN["apiKey"])).name
        with pytest.raises(BrokerError):
            await broker.api_keys.check(FROZEN["apiKey"][:-1] + "A")
    async with open_vault(settings_of(place), env={}, clock=clock) as vault:
        assert [("mail-client", "clientSecret")] == await vault.secrets.names()
        assert 4 == len([grant async for grant in vault.grants.list()])


async def leased(broker: Broker) -> AsyncIterator[str]:
    """The ids of the events that can be leased now, in order."""
    while (delivery := await broker.events.lease("planner")) is not None:
        yield delivery.id


async def test_what_only_reads_upgrades_nothing_and_says_what_waits(place, capsys):
    before = (place / "store" / "data" / "keyring").read_bytes()
    async with open_vault(settings_of(place), env={}, upgrading=False) as vault:
        assert 2 == len([grant async for grant in vault.grants.list(subject="acme:user:1")])
        assert 1 == len(await vault.sessions.list(app="mail"))
    assert "the store waits for an upgrade" in capsys.readouterr().err
    assert (before, None) == ((place / "store" / "data" / "keyring").read_bytes(), upgrades_of(place))
    async with open_vault(settings_of(place), env={}) as vault:  # as `secrets set` opens it
        await vault.secrets.put("mail-client", "clientSecret", Secret("another"))
    assert "waits" not in capsys.readouterr().err
    assert Upgrades(names_of(STEPS)) == upgrades_of(place)


async def test_queues_are_read_as_they_are_before_an_upgrade_and_the_same_after_it(place):
    before, clock = tree(place / "store" / "data"), TestClock(MADE_AT)
    said = []
    for upgrading in (False, True):
        async with open_vault(settings_of(place), env={}, clock=clock, upgrading=upgrading) as vault:
            [state] = await vault.dead_letters.states()
            assert ("planner", 2, 1, 1) == (state.agent, state.waiting, state.leased, state.dead)
            dead = [await vault.dead_letters.dead(agent) for agent in (None, "planner", "writer")]
            assert [["evt-as-3-auth.granted"]] * 2 + [[]] == [[letter.id for letter in each] for each in dead]
            said.append((state, dead))
        assert upgrading or before == tree(place / "store" / "data")
    assert said[0] == said[1]


async def test_a_damaged_queue_is_not_repaired_before_the_upgrade(place):
    [queue] = (place / "store" / "data" / "queues").iterdir()
    queue.write_bytes(queue.read_bytes()[:-1] + b"?")
    before = tree(place / "store" / "data")
    async with open_vault(settings_of(place), env={}, upgrading=False) as vault:
        with pytest.raises(BrokerError) as refused:
            await vault.dead_letters.dead("planner")
    assert (Code.RECORD_CORRUPT, True) == (refused.value.code, "waits for an upgrade" in refused.value.note)
    assert before == tree(place / "store" / "data"), "nor copied to corrupt/"


def test_doctor_sees_the_dead_letters_of_a_store_that_waits(place, capsys):
    run(["doctor", "--config", str(place / "config"), "--json"])
    said = [found["text"] for found in json.loads(capsys.readouterr().out)["checks"]]
    assert any("1 dead letter" in text for text in said), said


@pytest.mark.parametrize(("begun", "says"), [(False, "is of an older version"), (True, "has begun")])
def test_doctor_names_an_upgrade_that_waits_or_was_interrupted_and_changes_nothing(place, capsys, begun, says):
    if begun:
        keyring_file(place / "store", place / "test.kek").rewrite(Upgrades((), names_of(STEPS)))
    before = tree(place / "store")
    run(["doctor", "--config", str(place / "config"), "--json"])
    said = [found["text"] for found in json.loads(capsys.readouterr().out)["checks"] if found["check"] == "keys"]
    assert any(says in text for text in said), said
    assert before == tree(place / "store")


def test_a_store_whose_upgrade_was_interrupted_is_named_so(place):
    ring = ring_of(place / "store", place / "test.kek")
    assert "waits" == upgrade_state(ring)
    assert "begun" == upgrade_state(ring.with_upgrades(Upgrades((), names_of(STEPS))))
    assert "done" == upgrade_state(ring.with_upgrades(Upgrades(names_of(STEPS))))
