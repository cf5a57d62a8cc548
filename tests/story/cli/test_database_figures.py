"""What operators see of a store in a database: the checks of `doctor`, and the gauges of keys and leases."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from oauthbroker.core.clock import SystemClock
from oauthbroker.observability.metrics import Gauge, Metric, Now
from oauthbroker.testing import IdentityProvider
from oauthbroker.wiring.opening import open_running
from tests.kit import postgres
from tests.kit.cli import BROKER, Desk, age_after_a_start

ENV, DATABASE = "BROKER_DATABASE_URL", "figures"


@pytest.fixture
def placed(
    desk: Desk, idp: IdentityProvider, postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    """A broker's folder whose store is a database."""
    postgres_server.empty_database(DATABASE)
    monkeypatch.setenv(ENV, postgres_server.url(DATABASE).reveal())
    write_store(desk)
    desk.ready_to_serve(idp)
    yield desk
    postgres_server.run(f"drop database {DATABASE} with (force)")


def write_store(desk: Desk, more: str = "") -> None:
    text, url = BROKER.format(base=desk.base, port=desk.port), f"url: {{valueFrom: {{env: {ENV}}}}}"
    desk.write("broker", text.replace("{root: ../store}", f"{{root: ../store, {url}{more}}}"))


def add_leases(server: postgres.Server, *, held: int, lapsed: int) -> None:
    for word, count, when in (("held", held, "+"), ("lapsed", lapsed, "-")):
        rows = f"'{word}' || each, '\\x00', now() {when} interval '1 hour' from generate_series(1, {count}) each"
        server.run(f"insert into oauthbroker.lease (name, owner, until) select {rows}", DATABASE)


def checked(desk: Desk, check: str) -> list[tuple[str, str, str]]:
    """The light, the text and the next step of each finding of one check."""
    reported = json.loads(desk.type("doctor", "--offline", "--json").out)["checks"]
    return [(each["severity"], each["text"], each["hint"]) for each in reported if each["check"] == check]


def test_doctor_counts_the_leases_that_are_held_and_those_that_lapsed(
    placed: Desk, postgres_server: postgres.Server
) -> None:
    assert [("ok", "0 leases held, 0 lapsed.", "")] == checked(placed, "database")
    add_leases(postgres_server, held=1, lapsed=2)
    assert [("ok", "1 lease held, 2 lapsed.", "")] == checked(placed, "database")


def test_doctor_fails_for_a_database_that_an_operator_made_read_only(
    placed: Desk, postgres_server: postgres.Server
) -> None:
    """All that is read is well."""
    postgres_server.run(f"alter database {DATABASE} set default_transaction_read_only = on")
    try:
        (refused, (severity, _, _)) = checked(placed, "database")
    finally:
        postgres_server.run(f"alter database {DATABASE} reset default_transaction_read_only")
    assert ("failure", True, "ok") == (refused[0], "the database is read-only" in refused[1], severity)


def test_doctor_says_how_old_an_answer_may_be(placed: Desk) -> None:
    write_store(placed, ", consistency: available")
    (_, heard, bound) = checked(placed, "database")
    assert ("ok", "ok") == (heard[0], bound[0])
    assert heard[1].startswith("The feed hears changes:")
    assert "Without the database, tokens are handed out for 30 s after a check." == bound[1]


def test_doctor_warns_of_a_feed_behind_a_pooler(
    placed: Desk, postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_store(placed, ", consistency: fast")
    with postgres.pooler(postgres_server, DATABASE) as url:
        monkeypatch.setenv(ENV, url.reveal())
        (_, (severity, text, hint)) = checked(placed, "database")
    assert ("warning", True, True) == (
        severity,
        text.startswith("The feed of changes hears nothing"),
        "directUrl" in hint,
    )


@pytest.mark.parametrize("down", [True, False], ids=["nothing is there", "a pooler is there"])
def test_doctor_says_why_a_direct_url_is_of_no_use(
    placed: Desk, postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch, down: bool
) -> None:
    """Such as the old primary's after a failover."""
    write_store(placed, ", directUrl: {valueFrom: {env: BROKER_DIRECT_URL}}")
    with postgres.pooler(postgres_server, DATABASE) as url:
        monkeypatch.setenv("BROKER_DIRECT_URL", "postgresql://postgres@127.0.0.1:1/figures" if down else url.reveal())
        (_, (severity, text, hint)) = checked(placed, "database")
    assert ("warning", "Name the primary itself there, after a failover the new one.") == (severity, hint)
    assert ("it refuses connections" if down else "it leads to a pooler") in text


@pytest.mark.slow
def test_doctor_fails_for_a_database_that_was_set_back(placed: Desk, postgres_server: postgres.Server) -> None:
    env = {ENV: os.environ[ENV]}
    age_after_a_start(placed, 1, **env)
    postgres_server.empty_database("older", f"template {DATABASE}")
    age_after_a_start(placed, 2, **env)
    assert [("ok", "The store is not older than this host has seen it.", "")] == checked(placed, "age")
    postgres_server.run(f"drop database {DATABASE} with (force)")
    postgres_server.run(f"alter database older rename to {DATABASE}")
    ((severity, text, _),) = checked(placed, "age")
    assert ("failure", True) == (severity, text.startswith("storeRolledBack"))
    assert 0 == placed.type("store", "accept-restore", "--yes").code
    assert ["ok"] == [severity for severity, *_ in checked(placed, "age")]


def of_store() -> Now:
    """Return the store's gauges in a broker that has looked at the keyring once."""

    async def looked() -> Now:
        env: Any = os.environ
        async with open_running("config", env=env, clock=SystemClock(), background=False) as running:
            assert running._keys is not None
            await running._keys.follow()
            return await running.parts.gauges.of_store()

    return asyncio.run(looked())


def test_the_gauges_follow_a_change_of_the_seed(placed: Desk) -> None:
    def seeds() -> tuple[float, float, float]:
        said = of_store()
        return said[Gauge.KEY_EPOCH, ()], said[Gauge.OLD_SEEDS, ("reseal",)], said[Gauge.OLD_SEEDS, ("retire",)]

    seen = [seeds()]
    for step in ("rotate", "reseal", "retire"):
        assert 0 == placed.type("keys", step, *(["--yes"] if step == "retire" else [])).code
        seen.append(seeds())
    assert [(1, 0, 0), (2, 1, 0), (2, 0, 1), (2, 0, 0)] == seen


async def resealed() -> tuple[float, int]:
    """Return the counter of a broker whose background has looked twice for records to seal anew, and the number of
    records."""
    env: Any = os.environ
    async with open_running("config", env=env, clock=SystemClock(), background=False) as running:
        keys = running._keys
        assert keys is not None
        await keys.follow()
        for _ in range(2):
            await keys.reseal_gently()
        counted = running.parts.metrics.counts[Metric.RECORDS_RESEALED, ()]
        return counted, (await keys.rotation.seals()).total()


def test_the_counter_of_resealed_records_counts_each_once_in_the_broker_that_sealed_it(placed: Desk) -> None:
    for number in range(3):
        assert 0 == placed.type("secrets", "set", f"more{number}", "key", stdin=f"secret-{number}").code
    counted, before = asyncio.run(resealed())
    assert counted == 0, "there is no old seed"
    assert before >= 4
    assert 0 == placed.type("keys", "rotate").code
    counted, after = asyncio.run(resealed())
    assert before <= counted == after
    assert 0 == asyncio.run(resealed())[0], "another broker has sealed them"


def test_doctor_names_the_next_step_of_a_rotation(placed: Desk) -> None:
    def of_seeds() -> list[tuple[str, str, str]]:
        return [each for each in checked(placed, "keys") if "The key opens" not in each[1]]

    assert [] == of_seeds()
    assert 0 == placed.type("keys", "rotate").code
    hint = "A running broker does it; `oauthbroker keys reseal` does it now."
    assert [("ok", "Records are to be sealed anew with the newest seed.", hint)] == of_seeds()
    assert 0 == placed.type("keys", "reseal").code
    assert [("warning", "1 old seed can be destroyed.", "Run `oauthbroker keys retire`.")] == of_seeds()
    assert 0 == placed.type("keys", "retire", "--yes").code
    assert [] == of_seeds()


def test_the_gauges_count_the_leases_of_the_database(placed: Desk, postgres_server: postgres.Server) -> None:
    add_leases(postgres_server, held=3, lapsed=2)
    said = of_store()
    assert (3, 2) == (said[Gauge.STORE_LEASES, ("held",)], said[Gauge.STORE_LEASES, ("lapsed",)])
