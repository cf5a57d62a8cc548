"""An exception at any line of an attempt: the run ends all the same, once, with its audit entry, and owes nothing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dis import opname
from itertools import cycle
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import oauthbroker.flowtools.running
from oauthbroker.flowtools.risk.audit_types import EffectSent, RunStopped
from oauthbroker.flowtools.running.flow import ReadyFlow
from tests.kit.forms import is_long
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, Remembering, World, log, world_in

FOLDER = str(Path(oauthbroker.flowtools.running.__file__).parent)
STEP = 1 if is_long() else 97
LOOKS = 40
PAY = ("payment", {"provider": "stripe", "fields": {"amount": "1"}})
FAILS = ("assert", {"expression": "input.amount != 13", "message": "unlucky"})
NODES = {"a": BEGIN, "b": log("one"), "c": COMMIT, "p": PAY, "d": BEGIN, "e": log("two"), "f": FAILS}


class Fault(Exception):
    """What the test raises."""


def leaves_with(frame: FrameType) -> bool:
    """Tell whether a line is that of a `with` on the way out, before `__exit__` is called. Only a signal can raise
    something there, and then the connection stays open until it is collected, and keeps its locks."""
    code, at = frame.f_code.co_code, frame.f_lasti
    name, first = opname[code[at]], code[at : at + 2]
    return name in {"NOP", "SWAP", "PUSH_EXC_INFO"} or (name == "LOAD_CONST" and code[at : at + 6] == first * 3)


@contextmanager
def raising(at: int, fault: BaseException | None) -> Iterator[Callable[[], int]]:
    """Raise a fault at one line of those that work on a run, counted as they are reached."""
    seen, is_inside = 0, 0

    def line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen, is_inside
        if event == "return" and frame.f_code.co_name == "_attempt":
            is_inside -= 1
        if event == "line" and is_inside and not leaves_with(frame):
            seen += 1
            if seen - 1 == at and fault is not None:
                raise fault
        return line

    def called(frame: FrameType, _event: str, _: Any) -> Any:
        nonlocal is_inside
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        is_inside += frame.f_code.co_name == "_attempt"
        return line

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield lambda: seen
    finally:
        sys.settrace(before)


@pytest.fixture(params=["sqlite", "postgresql"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    given: dict[str, Any] = {"lease_seconds": -7200.0}
    if request.param == "sqlite":
        made = world_in(tmp_path, **given)
    else:
        server = request.getfixturevalue("postgres_server")
        server.empty_database(tmp_path.name.lower())
        made = World(server.url(tmp_path.name.lower()).reveal(), **given)
    yield made
    made.database.engine.dispose()


def ended(world: World, flow: ReadyFlow) -> None:
    """Look for runs as another process does, until each has ended."""
    for _ in range(LOOKS):
        if not (due := world.runs.due(10)):
            break
        for run, _ in due:
            world.runs.work(run, lambda _: flow)
    assert [] == world.unended()


@pytest.mark.slow
@pytest.mark.rule("run-kills", "001-rollback", "000-contract-0", "000-contract-8")
@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
@pytest.mark.parametrize("amount", [1, 13], ids=["succeeds", "fails"])
def test_a_run_ends_once_after_an_exception_at_any_line(world: World, keys: bool, amount: int) -> None:
    shop = Remembering(takes_keys=keys)
    object.__setattr__(world.runs._ports, "payments", {"stripe": shop})
    flow = world.flow(NODES, chain(*NODES), idempotencyKey="input.id")
    with raising(-1, None) as lines:
        world.runs.call(flow, {"id": "first", "amount": amount}, STAFF)
    total, faults = lines(), cycle([Fault, SystemExit, OverflowError])
    assert total > 200
    for at in range(0, total, STEP):
        shop.sent.clear()
        with suppress(SystemExit), raising(at, next(faults)("x")):
            world.runs.call(flow, {"id": str(at), "amount": amount}, STAFF)
        ended(world, flow)
        check(world, shop, flow, at)


def check(world: World, shop: Remembering, flow: ReadyFlow, at: int) -> None:
    found = world.runs.find(world.entries.of(RunStopped)[-1].run)
    assert found.state == world.entries.ends(found.id)[-1], at
    sent_first = [each.run for each in world.entries.of(EffectSent) if each.operation == "charge"]
    assert (found.id in sent_first) or not shop.sent, at
    sent = Counter(operation for operation, _ in {(each.operation, each.key) for each in shop.sent})
    times = Counter(each.key for each in shop.sent)
    assert shop.takes_keys or set(times.values()) <= {1}, at
    match found.state:
        case "succeeded":
            assert (1, 0) == (sent["charge"], sent["refund"]), (at, found)
        case "failed":
            reported = [note for note in found.notes if "paymentRollback" in note]
            assert sent["charge"] == sent["refund"] or reported, (at, found)
        case _:  # unknown: a person finds out
            assert (True, 0) == (sent["charge"] <= 1, sent["refund"]), (at, found)
