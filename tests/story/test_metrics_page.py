"""`/metrics` and `/readyz`: who may read, the figures, and that no person is named."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import signal
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from oauthbroker import open_broker
from oauthbroker.admin import gauges
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.events.port import QueueDepth
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Limits, Role, Settings
from oauthbroker.observability.metrics import FROM_THE_START, Gauge, Metric, Timing
from oauthbroker.observability.shared_metrics import MetricsFolder
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.format.port import Entry, Key, Reservation
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from oauthbroker.web.pages import metrics_page
from tests.kit.queues import until_queued
from tests.kit.running_broker import ALICE, BASE, BOB, Harness, UnwellStore, public, running, turn
from tests.kit.waiting import until
from tests.kit.warm_python import WARM
from tests.story.signed_in import PROXY_HEADERS
from tests.unit.web.kit import Answer, ask

HOST = BASE.removeprefix("http://")
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def get(harness: Harness, path: str = "/metrics", bearer: str = "", client: str = "192.0.2.1") -> Answer:
    headers = [("authorization", f"Bearer {bearer}")] if bearer else []
    return await ask(harness.broker.asgi.app, path, host=HOST, headers=headers, client=client)


async def key_of(harness: Harness, roles: Collection[Role]) -> str:
    _, text = await harness.broker.api_keys.create("ops", roles)
    return text.reveal()


def samples(answer: Answer) -> Samples:
    assert (200, "text/plain") == (answer.status, answer.headers["content-type"].partition(";")[0])
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def scrape(harness: Harness) -> Samples:
    return samples(await get(harness, bearer=await key_of(harness, {"operator"})))


# who may


@pytest.mark.case("79")
async def test_only_operators_may_read(harness: Harness) -> None:
    begun = await harness.broker.turns.begin(turn())
    assert 200 == (await get(harness, bearer=await key_of(harness, {"operator"}))).status
    assert 200 == (await get(harness, bearer=await key_of(harness, {"operator", "runtime"}))).status
    for bearer, refused in {
        "": (401, "unauthenticated"),
        "oabk.nonsense": (401, "unauthenticated"),
        await key_of(harness, {"runtime"}): (403, "notAllowed"),
        begun.token.reveal(): (403, "notAllowed"),
    }.items():
        answer = await get(harness, bearer=bearer, client="127.0.0.1")
        assert refused == (answer.status, answer.json["code"]), bearer[:5]


async def test_this_machine_may_read_where_that_is_configured(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    settings = public(BASE, admin_loopback=True)
    async with running(identity_provider, [], clock=test_clock, settings=settings) as harness:
        for client, status in {"127.0.0.1": 200, "::1": 200, "192.0.2.1": 401, "127.0.0.1.evil": 401, "": 401}.items():
            assert status == (await get(harness, client=client)).status, client
        assert 401 == (await get(harness, bearer="oabk.nonsense", client="127.0.0.1")).status
        for name in PROXY_HEADERS:
            relayed = [(name, "203.0.113.9")]
            answer = await ask(harness.broker.asgi.app, "/metrics", host=HOST, headers=relayed, client="127.0.0.1")
            assert 401 == answer.status, f"a proxy on this machine, by its {name}"
        foreign = await ask(harness.broker.asgi.app, "/metrics", host="evil.example", client="127.0.0.1")
        assert 421 == foreign.status, "a foreign page whose name leads here"


@pytest.mark.case("99")
async def test_who_reads_too_often_is_told_when_to_come_back_and_others_are_served(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    settings = dataclasses.replace(public(BASE), admin_loopback=True, limits=Limits(requests_per_minute=60))
    async with running(identity_provider, [], clock=test_clock, settings=settings) as harness:
        one, other = await key_of(harness, {"operator"}), await key_of(harness, {"operator"})
        runtimes = await key_of(harness, {"runtime"})
        for bearer, client, served in (
            (one, "192.0.2.1", 200),
            ("", "127.0.0.1", 200),
            (runtimes, "192.0.2.1", 403),
            ("oabk.nonsense", "192.0.2.9", 401),
            ("", "192.0.2.10", 401),
        ):
            answers = [await get(harness, bearer=bearer, client=client) for _ in range(12)]
            assert [served] * 10 + [429] * 2 == [answer.status for answer in answers]
            assert ("rateLimited", "1") == (answers[-1].json["code"], answers[-1].headers["retry-after"])
        assert 200 == (await get(harness, bearer=other, client="192.0.2.9")).status, "a stranger keeps no caller out"
        test_clock.advance(1)
        assert 200 == (await get(harness, bearer=one)).status


class Away(MemoryStore):
    """A shared store that gives no answer while it is `away`."""

    away = False

    def unchanged(self, entry: Entry) -> bool:
        return not self.away and super().unchanged(entry)

    async def is_current(self, *entries: Entry) -> bool:
        self._answer()
        return await super().is_current(*entries)

    async def get(self, key: Key) -> Entry | None:
        self._answer()
        return await super().get(key)

    def _answer(self) -> None:
        if self.away:
            raise BrokerError(Code.STORE_UNAVAILABLE)


async def test_while_the_store_is_away_a_key_that_has_read_within_an_hour_still_reads(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    store = Away(kinds=KINDS, lease_kinds=LEASES, clock=test_clock)
    async with running(identity_provider, [], clock=test_clock, store=store, background=False) as harness:
        known, unused = await key_of(harness, {"operator"}), await key_of(harness, {"operator"})
        runtimes, gone = await key_of(harness, {"runtime"}), await key_of(harness, {"operator"})
        assert [200, 403, 200] == [(await get(harness, bearer=each)).status for each in (known, runtimes, gone)]
        await harness.broker.api_keys.remove(f"key-{gone.split('.')[1]}")
        assert 401 == (await get(harness, bearer=gone)).status
        store.away = True
        test_clock.advance(3599)
        answers = [await get(harness, bearer=each) for each in (known, unused, runtimes, gone, f"{known[:-1]}!")]
        assert [200, 503, 503, 503, 401] == [each.status for each in answers]
        test_clock.advance(1)
        assert 503 == (await get(harness, bearer=known)).status, "reads meanwhile do not count"
        store.away = False
        assert 200 == (await get(harness, bearer=known)).status


class Hangs(Away):
    """A shared store that answers nothing while it is `away`, as a database whose table is locked."""

    async def is_current(self, *entries: Entry) -> bool:
        await self._hung()
        return await super().is_current(*entries)

    async def get(self, key: Key) -> Entry | None:
        await self._hung()
        return await super().get(key)

    async def _hung(self) -> None:
        while self.away:
            await asyncio.sleep(0.01)


async def test_a_store_that_does_not_answer_keeps_no_scrape_waiting_until_prometheus_gives_up(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (gauges, metrics_page):
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.1)
    store = Hangs(kinds=KINDS, lease_kinds=LEASES, clock=test_clock)
    async with running(identity_provider, [], clock=test_clock, store=store, background=False) as harness:
        known, unused = await key_of(harness, {"operator"}), await key_of(harness, {"operator"})
        waiting = (Gauge.QUEUE_EVENTS, (("state", "waiting"),))
        assert waiting in samples(await get(harness, bearer=known))
        real, asked = harness.parts.queues.depths, list[float]()

        async def depths() -> list[QueueDepth]:
            asked.append(test_clock.monotonic())
            await store._hung()
            return await real()

        monkeypatch.setattr(harness.parts.queues, "depths", depths)
        store.away = True
        test_clock.advance(gauges.LOOK_SECONDS)
        async with asyncio.timeout(30):
            assert 503 == (await get(harness, bearer=unused)).status
            for _ in range(2):
                assert waiting not in samples(await get(harness, bearer=known)), (
                    "a figure of before is no figure of now"
                )
                test_clock.advance(gauges.LOOK_SECONDS)
        assert 1 == len(asked), "one look at a time"
        store.away = False
        looking = harness.parts.gauges._looking
        assert looking is not None
        await looking
        assert waiting in samples(await get(harness, bearer=known))


class TakesNothing(Away):
    """A shared store that can be read and, while it is `away`, takes nothing: a right is missing, or a disk is full."""

    def unchanged(self, entry: Entry) -> bool:
        return MemoryStore.unchanged(self, entry)

    def _answer(self) -> None:
        return

    @asynccontextmanager
    async def reserve(self, key: Key, size: int, *, now: bool = True) -> AsyncIterator[Reservation]:
        super()._answer()
        async with super().reserve(key, size, now=now) as reservation:
            yield reservation


@pytest.mark.parametrize("kind", [Away, TakesNothing])
async def test_health_and_its_gauge_say_that_the_store_is_away_without_a_token_call(
    identity_provider: IdentityProvider, test_clock: TestClock, kind: type[Away]
) -> None:
    store = kind(kinds=KINDS, lease_kinds=LEASES, clock=test_clock)
    settings = dataclasses.replace(public(BASE), admin_loopback=True, limits=Limits(sweep_seconds=0.02))
    async with running(identity_provider, [], clock=test_clock, store=store, settings=settings) as harness:
        problem = (Gauge.HEALTH_PROBLEMS, (("code", "storeUnavailable"),))
        assert problem not in samples(await get(harness, client="127.0.0.1"))
        store.away = True
        await until(lambda: harness.broker.health().problems)
        assert {"status": "red", "problems": ["storeUnavailable"]} == (await get(harness, "/healthz")).json
        assert 1 == samples(await get(harness, client="127.0.0.1"))[problem]
        store.away = False
        await until(lambda: not harness.broker.health().problems)
        assert problem not in samples(await get(harness, client="127.0.0.1"))


async def test_a_key_that_reads_too_often_is_refused_while_the_store_is_away_too(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    store = Away(kinds=KINDS, lease_kinds=LEASES, clock=test_clock)
    settings = dataclasses.replace(public(BASE), limits=Limits(requests_per_minute=60))
    async with running(
        identity_provider, [], clock=test_clock, store=store, settings=settings, background=False
    ) as harness:
        key = await key_of(harness, {"operator"})
        assert 200 == (await get(harness, bearer=key)).status
        store.away = True
        assert [200] * 9 + [429] == [(await get(harness, bearer=key)).status for _ in range(10)]


# what


async def test_the_page_has_every_figure_there_is_with_its_labels(harness: Harness) -> None:
    await harness.connected("mail")
    assert await harness.broker.events.lease("planner", wait=5) is not None  # the relay has queued what happened
    await harness.ask("no-such-app")
    await harness.browser().open(f"{harness.origin}/nowhere")
    said = await scrape(harness)
    family = {name for name, _ in said}
    elsewhere = {Metric.EVENTS_FORWARDED}  # nothing is forwarded here: tests/story/test_forwarding.py
    assert {metric.value for metric in {*Metric} - elsewhere if metric.labels != ("code",)} <= family
    assert {f"{timing.value}_bucket" for timing in Timing} <= family
    of_stores = {Gauge.KEY_EPOCH, Gauge.OLD_SEEDS, Gauge.STORE_FEEDS, Gauge.STORE_DEGRADED, Gauge.STORE_LEASES}
    assert {gauge.value for gauge in {*Gauge} - of_stores} - {"oauthbroker_health_problems"} <= family
    known = {each.value: set(each.labels) for each in (*Metric, *Gauge)}
    known |= {f"{each.value}_{part}": set(each.labels) for each in Timing for part in ("count", "sum")}
    known |= {f"{each.value}_bucket": {*each.labels, "le"} for each in Timing}
    assert {name: {label for label, _ in labels} for name, labels in said} == {name: known[name] for name in family}


async def test_a_connection_is_seen_from_all_sides(harness: Harness) -> None:
    asked = await harness.ask_link("mail")
    before = await scrape(harness)
    await harness.connect(asked)
    await harness.ask("mail")
    after = await scrape(harness)

    def grown(name: str, **labels: str) -> float:
        key = (name, tuple(sorted(labels.items())))
        return after.get(key, 0) - before.get(key, 0)

    assert 1 == grown("oauthbroker_connections_completed_total", app="mail")
    assert 0 == grown("oauthbroker_connections_completed_total", app="files")
    assert 1 == grown("oauthbroker_tokens_ready_total", app="mail")
    assert 1 == grown("oauthbroker_token_call_seconds_count", outcome="ready")
    assert 1 == grown("oauthbroker_provider_requests_total", app="mail", kind="code", status="2xx")
    assert 1 == grown("oauthbroker_provider_request_seconds_count", app="mail", kind="code")
    assert -1 == grown("oauthbroker_sessions_waiting", app="mail")
    assert 1 == grown("oauthbroker_http_requests_total", route="/oauth/callback/mail", method="GET", status="3xx")
    assert 1 == grown("oauthbroker_http_requests_total", route="/connect/{ticket}", method="POST", status="2xx")


async def test_a_series_of_an_app_is_there_before_anything_happened(harness: Harness) -> None:
    """Or the first failure of an app would not be an increase."""
    said = await scrape(harness)
    for app in ("mail", "files", "team"):
        for name in ("oauthbroker_tokens_ready_total", "oauthbroker_refreshes_unstored_total", Gauge.CIRCUITS_OPEN):
            assert 0 == said[name, (("app", app),)]
    for metric, labels in FROM_THE_START:
        assert 0 == said[metric.value, tuple(zip(metric.labels, labels, strict=True))]


async def test_a_provider_that_is_down_opens_a_circuit(harness: Harness, test_clock: TestClock) -> None:
    await harness.connected("mail")
    test_clock.advance(3600)
    harness.idp.script.refresh.answer(503, headers={"retry-after": "600"})
    await harness.ask("mail")
    assert 0 == (await scrape(harness))[Gauge.CIRCUITS_OPEN, (("app", "mail"),)], "it pauses one grant"
    for _ in range(3):  # it cannot be reached: that concerns all grants
        harness.parts.circuits[0].failed("mail", BrokerError(Code.PROVIDER_UNREACHABLE))
    said = await scrape(harness)
    assert 1 == said[Gauge.CIRCUITS_OPEN, (("app", "mail"),)]
    assert 0 == said[Gauge.CIRCUITS_OPEN, (("app", "files"),)]
    kind = (("app", "mail"), ("kind", "refresh"), ("status", "5xx"))
    assert 1 == said["oauthbroker_provider_requests_total", kind]
    test_clock.advance(601)
    assert 0 == (await scrape(harness))[Gauge.CIRCUITS_OPEN, (("app", "mail"),)]


async def test_queues_are_looked_at_now_and_then(harness: Harness, test_clock: TestClock) -> None:
    """Waiting events, dead ones and their age; read at most once in half a minute."""
    await harness.connected("mail")
    await until_queued(harness.parts.queues)
    first = await scrape(harness)
    assert 1 == first[Gauge.QUEUE_EVENTS, (("state", "waiting"),)]
    await harness.events(count=1)
    test_clock.advance(29)
    assert 1 == (await scrape(harness))[Gauge.QUEUE_EVENTS, (("state", "waiting"),)]
    await harness.connected("files")
    await until_queued(harness.parts.queues)
    test_clock.advance(2)
    later = await scrape(harness)
    assert 1 == later[Gauge.QUEUE_EVENTS, (("state", "waiting"),)]
    assert 2 == later[Gauge.QUEUE_OLDEST, ()]


@pytest.mark.case("92")
async def test_no_person_and_no_account_is_named(harness: Harness, canaries: Canaries) -> None:
    """Subjects, agents, conversations, ids, tickets and what people typed into addresses are in no label."""
    await harness.connected("mail")
    asked = await harness.ask_link("mail", of=turn(user=BOB))
    await harness.connect(asked, "mallory")
    await harness.browser().open(f"{harness.origin}/connect/idp:user:U777777")  # a canary from now on, like any ticket
    text = (await get(harness, bearer=await key_of(harness, {"operator"}))).text
    for word in (
        ALICE,
        BOB,
        "U234567",
        "U777777",
        "planner",
        "Swarm",
        "T111",
        "chat-main",
        "1700000000",
        asked.auth_session_id,
    ):
        assert word not in text
    assert not re.search(r"(as|evt|key|turn)-|sha256|/connect/(?!\{)", text)
    assert [] == canaries.search(text, "the metrics page")


# ready


async def test_ready_is_ready_until_it_stops(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    async with running(identity_provider, [], clock=test_clock) as harness:
        answer = await get(harness, "/readyz")
        assert (200, {"status": "ready"}) == (answer.status, answer.json)
        harness.broker.life.stop()
        answer = await get(harness, "/readyz")
        assert (503, {"status": "unready", "problems": ["stopping"]}) == (answer.status, answer.json)
        assert 200 == (await get(harness, "/healthz")).status


async def test_a_disk_that_takes_nothing_is_not_ready_and_alive(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    disk = UnwellStore(test_clock)
    async with running(identity_provider, [], clock=test_clock, store=disk, background=False) as harness:
        disk.refuses = 1
        answer = await get(harness, "/readyz")
        assert (503, ["storeUnavailable"]) == (answer.status, answer.json["problems"])
        assert 200 == (await get(harness, "/healthz")).status
        assert 503 == (await get(harness, "/readyz")).status, "the answer of the same second"
        test_clock.advance(1)
        assert 200 == (await get(harness, "/readyz")).status


class Reading(MemoryStore):
    """Count reads, and hang when told to."""

    reads = 0
    hangs = False

    async def get(self, key: Key) -> Entry | None:
        self.reads += 1
        if self.hangs:
            await asyncio.Event().wait()
        return await super().get(key)


async def test_however_many_probes_come_the_disk_is_asked_once_a_second(
    identity_provider: IdentityProvider, test_clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Reading(kinds=KINDS, lease_kinds=LEASES, clock=test_clock)
    async with running(identity_provider, [], clock=test_clock, store=disk, background=False) as harness:
        monkeypatch.setattr("oauthbroker.web.gate.readiness.PATIENCE_SECONDS", 30)  # a slow machine is no hanging disk
        before = disk.reads
        assert {200} == {each.status for each in await asyncio.gather(*(get(harness, "/readyz") for _ in range(100)))}
        assert 1 == disk.reads - before
        test_clock.advance(1)
        disk.hangs = True
        monkeypatch.setattr(
            "oauthbroker.web.gate.readiness.PATIENCE_SECONDS", 0.05
        )  # of real time: from here on it is used up
        answers = await asyncio.gather(*(get(harness, "/readyz") for _ in range(100)))
        answers.append(await get(harness, "/readyz"))
        assert {(503, "storeUnavailable")} == {(each.status, each.json["problems"][0]) for each in answers}
        assert 2 == disk.reads - before


# several processes

BROKER = """
import asyncio, sys
from pathlib import Path
from oauthbroker import Turn, TurnAuth, open_broker
from oauthbroker.model.bundle import Bundle
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.model.settings import Settings
from oauthbroker.store.memory import MemoryStore
from oauthbroker.core.clock import SystemClock

async def main():
    clock = SystemClock()
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    turn = Turn("planner", "1", "Swarm/default", auth=TurnAuth({"type": "user", "id": "u"}, {"user": "u"}))
    bundle = Bundle(Settings(), {})
    async with open_broker(bundle, env={}, store=store, metrics_folder=Path(sys.argv[1])) as broker:
        print("open", flush=True)
        for count in map(int, iter(sys.stdin.readline, "")):
            for _ in range(count):
                await broker.oauth(turn).get_access_token("no-such-app")
            await asyncio.sleep(1.2)
            print("asked", flush=True)

asyncio.run(main())
"""


@asynccontextmanager
async def worker(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WARM + BROKER, str(folder),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert b"open\n" == await process.stdout.readline()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def calls(process: asyncio.subprocess.Process, count: int) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{count}\n".encode())
    assert b"asked\n" == await process.stdout.readline()


@pytest.mark.slow
async def test_each_process_answers_for_all_and_no_count_goes_down(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    clock = SystemClock()
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)
    bundle = Bundle(Settings(admin_loopback=True), {})
    failures = ("oauthbroker_token_errors_total", (("code", Code.OAUTH_APP_NOT_FOUND.value),))
    async with (
        open_broker(bundle, env={}, store=store, clock=clock, metrics_folder=folder, background=False) as broker,
        worker(folder) as one,
        worker(folder) as two,
    ):

        async def now() -> tuple[float, float, float]:
            said = samples(await ask(broker.asgi.api, "/metrics", host=HOST, client="127.0.0.1"))
            slow = said["oauthbroker_token_call_seconds_count", (("outcome", "error"),)]
            return said[failures], slow, said[Gauge.WORKERS, ()]

        await asyncio.gather(calls(one, 3), calls(two, 40))
        assert (43, 43, 3) == await now()
        one.send_signal(signal.SIGKILL)
        await one.wait()
        assert (43, 43, 2) == await now()
        await calls(two, 10)
        assert two.stdin is not None
        two.stdin.close()  # it ends in order, with its last figures
        assert 0 == await two.wait()
        assert (53, 53, 1) == await now()


async def test_a_folder_that_cannot_be_read_is_no_half_answer(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures of one process of many would look as if all had begun anew."""

    def broken(_self: object) -> Any:
        raise PermissionError

    monkeypatch.setattr(MetricsFolder, "others", broken)
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=test_clock)
    settings = dataclasses.replace(public(BASE), admin_loopback=True)
    async with open_broker(
        Bundle(settings, {}), env={}, clock=test_clock, store=store, metrics_folder=tmp_path / "m", background=False
    ) as broker:
        answer = await ask(broker.asgi.app, "/metrics", host=HOST, client="::1")
        assert (503, "storeUnavailable") == (answer.status, answer.json["code"])
