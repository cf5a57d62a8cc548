"""`POST /v1/grants`: operators import grants as JSON lines, which are written as they come and never stored."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from oauthbroker import Ready
from oauthbroker.audit import CallMade, CallRefused, GrantImported
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.grants.import_requests import AT_ONCE, PREFIX
from oauthbroker.store.format.port import Entry, Key
from oauthbroker.testing import Canaries, IdentityProvider, TestClock
from tests.kit.forms import examples
from tests.kit.running_broker import Harness, file_store, running, turn, user_app
from tests.story.api.kit import Answer, Caller, Callers, Part, checked

Line = dict[str, Any]
NDJSON = "application/x-ndjson"
LATER = "2099-01-01T00:00:00Z"


def line_of(number: int, **more: Any) -> Line:
    """A line of a person of her own; her token is swept for."""
    token = Canaries.active().mint("access token").reveal()
    return {"app": "mail", "subject": f"idp:user:N{number}", "accessToken": token, "expiresAt": LATER, **more}


def body_of(lines: Iterable[Line | bytes]) -> bytes:
    return b"".join((it if isinstance(it, bytes) else json.dumps(it).encode()) + b"\n" for it in lines)


async def sent(
    caller: Caller, body: bytes | list[bytes | Part], key: str | None = "key-1", kind: str = NDJSON, **more: Any
) -> Answer:
    headers = {} if key is None else {"Idempotency-Key": key}
    return await caller.send("POST", "/v1/grants", body=body, headers=headers, kind=kind, **more)


async def imported(caller: Caller, lines: Iterable[Line | bytes], key: str = "key-1") -> dict[str, Any]:
    answer = await sent(caller, body_of(lines), key)
    assert 200 == answer.status, answer.text
    found: dict[str, Any] = checked("ImportedBody", answer.body)
    return found


def written(harness: Harness) -> int:
    return sum(isinstance(it, GrantImported) for it in harness.audit.entries)


async def grants(harness: Harness) -> set[str]:
    return {each.record.subject async for each in harness.repository.grants()}


async def test_good_lines_are_imported_and_bad_ones_are_named_by_number(harness: Harness, api: Callers) -> None:
    third = line_of(3)
    bad = [line_of(5, app="other"), line_of(1), line_of(7, subject=7)]
    lines: list[Line | bytes] = [line_of(1), b"{", third, b"", *bad]
    found = await imported(api.operator, lines)
    counts = {name: count for name, count in found.items() if name != "problems" and count}
    assert {"lines": 6, "imported": 2, "refused": 4, "unverified": 2} == counts
    assert [2, 5, 6, 7] == [each["line"] for each in found["problems"]]
    assert ["the same app, subject and connection as line 1. Keep one."] == found["problems"][2]["reasons"]
    assert {"idp:user:N1", "idp:user:N3"} == await grants(harness)
    ready = await harness.ask("mail", of=turn(user="idp:user:N3"))
    assert isinstance(ready, Ready)
    assert third["accessToken"] == ready.access_token.reveal()


async def test_the_audit_log_knows_the_call_and_each_grant(harness: Harness, api: Callers) -> None:
    await imported(api.operator, [line_of(1), line_of(2)])
    made = [it for it in harness.audit.entries if isinstance(it, CallMade | GrantImported)]
    assert [CallMade, GrantImported, GrantImported] == [type(it) for it in made]
    assert isinstance(made[0], CallMade)
    assert "POST /v1/grants" == made[0].route


async def test_the_same_key_with_the_same_lines_answers_the_same_and_writes_nothing(
    harness: Harness, api: Callers
) -> None:
    lines: list[Line | bytes] = [line_of(1), b"{", *(line_of(number) for number in range(2, 3 * AT_ONCE))]
    first = await imported(api.operator, lines)
    before = written(harness)
    assert first == await imported(api.operator, lines)
    await harness.broker.revoke("mail", subject="idp:user:N1")
    assert first == await imported(api.operator, lines), "nor is one imported that was ended since"
    assert before == written(harness)
    again = await imported(api.operator, lines, "key-2")
    assert (0, len(lines) - 2, 1) == (again["imported"], again["there"], again["revoked"])


OTHERS: dict[str, Callable[[list[Line]], list[Line]]] = {
    "one more": lambda lines: [*lines, line_of(900)],
    "one less": lambda lines: lines[:-1],
    "the first differs": lambda lines: [line_of(900), *lines[1:]],
    "the last differs": lambda lines: [*lines[:-1], line_of(900)],
    "none": lambda lines: [],
    "another order": lambda lines: lines[::-1],
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
async def test_the_same_key_with_other_lines_is_refused_before_one_is_written(
    harness: Harness, api: Callers, other: Callable[[list[Line]], list[Line]]
) -> None:
    lines = [line_of(number) for number in range(AT_ONCE + 3)]
    first = await imported(api.operator, lines)
    before = written(harness)
    answer = await sent(api.operator, body_of(other(lines)))
    assert (409, "idempotencyConflict") == (answer.status, answer.code)
    assert before == written(harness)
    assert first == await imported(api.operator, lines), "and the key is unchanged"


async def test_a_key_of_no_lines_is_taken_too(api: Callers) -> None:
    assert 0 == (await imported(api.operator, []))["lines"]
    assert 0 == (await imported(api.operator, []))["lines"]
    assert 409 == (await sent(api.operator, body_of([line_of(1)]))).status


async def test_two_operators_may_choose_the_same_key(harness: Harness, api: Callers) -> None:
    _, secret = await harness.broker.api_keys.create("second", ["operator"])
    Canaries.active().add(secret, "API key")
    await imported(api.operator, [line_of(1)])
    assert 1 == (await imported(api.holding(secret), [line_of(2)]))["imported"]


async def test_a_key_is_forgotten_after_a_week(harness: Harness, api: Callers) -> None:
    await imported(api.operator, [line_of(1)])
    harness.clock.advance(7 * 86400 + 1)
    assert 1 == (await imported(api.operator, [line_of(2)]))["imported"]
    kept = [it.key async for it in harness.repository.plugin_values.of("oauthbroker") if it.key.startswith(PREFIX)]
    assert 1 == len(kept)


@pytest.mark.parametrize("key", [None, "", "a b", "k" * 129, "\x7f", "é"])
async def test_a_request_without_a_usable_key_is_refused(harness: Harness, api: Callers, key: str | None) -> None:
    answer = await sent(api.operator, body_of([line_of(1)]), key)
    assert (400, "requestInvalid") == (answer.status, answer.code)
    problem = "value" if key else "missing"
    assert [{"pointer": "/Idempotency-Key", "problem": problem}] == answer.json()["errors"]
    assert set() == await grants(harness)


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-ndjson-x"])
async def test_only_json_lines_are_read(api: Callers, kind: str) -> None:
    answer = await sent(api.operator, body_of([line_of(1)]), kind=kind)
    assert (415, "unsupportedMediaType") == (answer.status, answer.code)
    assert NDJSON in answer.json()["detail"]


async def test_only_operators_may(harness: Harness, api: Callers) -> None:
    never_read = 0

    async def part() -> bytes:
        nonlocal never_read
        never_read += 1
        return body_of([line_of(1)])

    turn_token = await api.turn()
    for caller, status in ((api.stranger, 401), (api.runtime, 403), (turn_token, 403), (await api.tool(), 403)):
        assert status == (await sent(caller, [part, b""])).status
    assert (0, set()) == (never_read, await grants(harness))
    assert 3 == sum(isinstance(it, CallRefused) for it in harness.audit.entries)


HOSTILE: dict[str, bytes] = {
    "control characters": b'{"app":"mail","subject":"idp:user:\\u0000\\u001b[2J","accessToken":"a"}',
    "a line break in a token": b'{"app":"mail","subject":"idp:user:X","accessToken":"a\\r\\nX: y"}',
    "raw control bytes": b'{"app":"mail\x00","subject":"\x1b"}',
    "a huge number": b'{"app":"mail","subject":' + b"9" * 5000 + b"}",
    "a huge exponent": b'{"app":"mail","subject":1e999999}',
    "not a number": b'{"app":"mail","subject":NaN}',
    "deep lists": b'{"app":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "deep objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "a name twice": b'{"app":"mail","app":"mail","subject":"idp:user:X","accessToken":"a"}',
    "a lone surrogate": b'{"app":"mail","subject":"idp:user:\\ud800","accessToken":"a"}',
    "no UTF-8": b'{"app":"mail","subject":"\xff\xfe"}',
    "a null": b"null",
    "a list": b"[1]",
    "many members": json.dumps({f"m{number}": 1 for number in range(4000)}).encode(),
    "many scopes": json.dumps({"app": "mail", "subject": "idp:user:X", "accessToken": "a", "scopes": ["x"] * 5000}).encode(),
    "too long": b'{"app":"' + b"x" * 70_000 + b'"}',
    "an end that is no time": b'{"app":"mail","subject":"idp:user:X","accessToken":"a","expiresAt":"9999-99-99"}',
    "the end of time": b'{"app":"mail","subject":"idp:user:X","accessToken":"a","expiresAt":"9999-12-31T23:59:59-14:00"}',
}  # fmt: skip


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_line_is_refused_alone(harness: Harness, api: Callers, line: bytes) -> None:
    found = await imported(api.operator, [line_of(1), line, line_of(3)])
    assert (2, 1, [2]) == (found["imported"], found["refused"], [each["line"] for each in found["problems"]])
    assert {"idp:user:N1", "idp:user:N3"} == await grants(harness)


async def test_the_problems_of_an_answer_are_bounded(api: Callers) -> None:
    found = await imported(api.operator, [b"{"] * 700)
    assert (700, 500) == (found["refused"], len(found["problems"]))


async def test_no_plain_token_is_left_behind(harness: Harness, api: Callers) -> None:
    """The records hold digests and counts. Answers, logs and the audit log are swept by the harness."""
    bad = line_of(2, subject="", refreshToken=Canaries.active().mint("refresh token").reveal())
    await imported(api.operator, [line_of(1), bad, line_of(3, extra="x")])
    entries = [it async for it in harness.store.scan("plugins")]
    assert entries
    for entry in entries:
        Canaries.active().look(repr(entry.body), "the record of a key")


async def test_lines_are_written_while_the_next_ones_come(harness: Harness, api: Callers) -> None:
    seen = list[int]()

    def part(number: int) -> Part:
        async def piece() -> bytes:
            seen.append(written(harness))
            return body_of(line_of(number * AT_ONCE + each) for each in range(AT_ONCE))

        return piece

    answer = await sent(api.operator, [part(number) for number in range(5)])
    assert 5 * AT_ONCE == answer.json()["imported"]
    assert [number * AT_ONCE for number in range(5)] == seen


async def test_lines_that_are_cut_anywhere_are_the_same(harness: Harness, api: Callers) -> None:
    body = body_of([line_of(1), line_of(2, subject="idp:user:가"), line_of(3)])
    whole = (await sent(api.operator, body)).json()
    single: list[bytes | Part] = [body[at : at + 1] for at in range(len(body))]
    assert whole == (await sent(api.operator, single)).json(), "the same digest"


async def test_a_caller_that_leaves_goes_on_with_the_same_key(harness: Harness, api: Callers) -> None:
    lines = [line_of(number) for number in range(4 * AT_ONCE)]
    came = asyncio.Event()

    async def never() -> bytes:
        came.set()
        await asyncio.Event().wait()
        return b""

    first = body_of(lines[: 2 * AT_ONCE + 5])
    headers = {"Idempotency-Key": "key-1"}
    async with api.operator.open("POST", "/v1/grants", body=[first, never], headers=headers, kind=NDJSON) as exchange:
        await asyncio.wait_for(came.wait(), 60)
        assert exchange.task is not None
        exchange.task.cancel()
        await asyncio.wait([exchange.task])
        exchange.task = asyncio.create_task(asyncio.sleep(0))
    assert 2 * AT_ONCE == written(harness)
    found = await imported(api.operator, lines)
    assert (4 * AT_ONCE, 4 * AT_ONCE, 0) == (found["lines"], found["imported"], found["there"])
    assert 4 * AT_ONCE == written(harness), "none twice"


async def test_a_store_that_fails_is_no_refusal_of_a_line(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, put, left = [line_of(number) for number in range(2 * AT_ONCE)], harness.store.put, [AT_ONCE + 10]

    async def failing(key: Key, *args: Any, **more: Any) -> Entry:
        left[0] -= key.kind == "grants"
        if left[0] < 0 and key.kind == "grants":
            raise BrokerError(Code.STORE_UNAVAILABLE)
        return await put(key, *args, **more)

    monkeypatch.setattr(harness.store, "put", failing)
    answer = await sent(api.operator, body_of(lines))
    assert (503, "storeUnavailable") == (answer.status, answer.code)
    monkeypatch.undo()
    found = await imported(api.operator, lines)
    assert (2 * AT_ONCE, 2 * AT_ONCE) == (found["lines"], found["imported"] + found["there"])
    assert 2 * AT_ONCE == len(await grants(harness))


async def test_an_import_under_way_is_alone(harness: Harness, api: Callers) -> None:
    """The same key at the same time, here and in another process, is answered `storeLocked`, and may be repeated."""
    goes_on, line = asyncio.Event(), line_of(1)

    async def late() -> bytes:
        await goes_on.wait()
        return body_of([line])

    first = asyncio.create_task(sent(api.operator, [late, b""]))
    await asyncio.sleep(0.05)
    second = await sent(api.operator, body_of([line]))
    assert (503, "storeLocked") == (second.status, second.code)
    goes_on.set()
    assert (await first).json() == await imported(api.operator, [line])
    assert 1 == written(harness)


async def test_a_key_that_is_taken_away_ends_its_import(harness: Harness, api: Callers) -> None:
    found, secret = await harness.broker.api_keys.create("short", ["operator"])
    Canaries.active().add(secret, "API key")

    async def late() -> bytes:
        await harness.broker.api_keys.remove(found.id)
        return body_of(line_of(number) for number in range(AT_ONCE, 2 * AT_ONCE))

    answer = await sent(api.holding(secret), [body_of(line_of(number) for number in range(AT_ONCE)), late])
    assert (401, AT_ONCE) == (answer.status, written(harness))


async def test_a_body_beyond_its_limit_is_refused(
    harness: Harness, api: Callers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oauthbroker.web.gate.request_limits.STREAM_LIMIT", 100_000)
    long = [b" " * 60_000 + b"\n"] * 2
    assert (413, "requestTooLarge") == ((no := await sent(api.operator, [*long])).status, no.code)


@pytest.fixture
async def on_disk(identity_provider: IdentityProvider, tmp_path: Any, test_clock: TestClock) -> AsyncIterator[Harness]:
    store = file_store(tmp_path, test_clock)
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock, store=store) as harness:
        yield harness


@pytest.mark.slow
async def test_five_thousand_lines_take_as_much_memory_as_a_few(on_disk: Harness) -> None:
    """40 MB pass, in parts that are made when they are asked for. Every tenth line is good."""
    count, api = examples(5000), await Callers.of(on_disk)
    token = Canaries.active().mint("access token").reveal()

    def part(number: int) -> Part:
        async def piece() -> bytes:
            line = {"app": "mail", "subject": f"idp:user:N{number}", "accessToken": token, "expiresAt": LATER}
            wrong = {} if number % 10 == 0 else {"extra": "x" * 8000}
            return body_of([line | wrong])

        return piece

    await sent(api.operator, [part(-10)], "warm")
    tracemalloc.start()
    try:
        answer = await sent(api.operator, [part(number) for number in range(count)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (count, count // 10) == (answer.json()["lines"], answer.json()["imported"])
    assert peak < 8_000_000, peak
