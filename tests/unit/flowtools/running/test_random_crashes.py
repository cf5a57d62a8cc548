"""Random flows, random answers of the outside, and processes that die at random points, against a model of the
entities: nothing half, nothing twice."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import event, given, settings
from hypothesis import strategies as st

from oauthbroker.flowtools.running.ports import AnswerLost, Effect, EffectRefused, NotSent, Ports
from oauthbroker.flowtools.running.working import RunResult
from tests.kit.forms import examples
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, Entries, World, log, world_in

Death = tuple[str, int]
Block = tuple[str, ...]  # the kind of the block, then its operations
Rows = tuple[dict[str, Any], tuple[str, ...]]  # the orders that are not deleted, and the lines of the log
ORDERS = ("o1", "o2")
CHANGES = [f"{what} {order}" for what in ("note", "pay", "cancel", "remove", "sink") for order in ORDERS]
ROWS = [*CHANGES, *["log", "note o1", "note o2"] * 4, "stop"]
ANSWERS = ["done", "done", "lost, done", "lost, not done", "not sent", "refused", "refused, again"]
CALL = {"id": "a", "amount": 3}
DEATHS = st.tuples(st.just("statement"), st.integers(0, 50)) | st.tuples(st.just("effect"), st.integers(0, 3))


class Died(KeyboardInterrupt):
    """The process is gone."""


class Refused(Exception):
    """The model refuses an operation."""


class Life:
    """The life of one process, which ends at a statement or commit, or on one side of an effect: behind so many of
    them."""

    def __init__(self, end: Death | None) -> None:
        self.left, self.is_over = dict([end]) if end else {}, False

    def passes(self, kind: str) -> None:
        if kind in self.left:
            self.left[kind] -= 1
            self.is_over |= self.left[kind] < 0
        if self.is_over:  # the dead do nothing more
            raise Died


@dataclass
class Outside:
    """A provider, which outlives the processes. It answers each new effect as its script says, then with success."""

    takes_keys: bool
    script: dict[str, list[str]]  # by the operation, or by the recipient
    life: Life = field(default_factory=lambda: Life(None))
    happened: Counter[str] = field(default_factory=Counter)
    lost: set[str] = field(default_factory=set)

    def send(self, effect: Effect) -> Any:
        self.life.passes("effect")
        name = str(effect.fields["subject"]) if effect.kind == "email" else f"{effect.operation} {effect.key}"
        node = name if effect.kind == "email" else effect.operation
        answers = self.script.get(node, [])
        answer = answers.pop(0) if answers and not (self.takes_keys and name in self.happened) else "done"
        if answer in {"done", "lost, done"} and not (self.takes_keys and name in self.happened):
            self.happened[name] += 1
        self.life.passes("effect")
        if answer.startswith("lost"):
            self.lost.add(name)
            raise AnswerLost(answer)
        if answer == "not sent":
            raise NotSent(answer)
        if answer.startswith("refused"):
            raise EffectRefused(answer, again="again" in answer)
        return {"paymentId": effect.key}


@st.composite
def stories(draw: Any) -> tuple[list[Block], list[str], list[str], list[Death]]:
    rows = st.lists(st.sampled_from(ROWS), min_size=1, max_size=3).map(lambda found: ("rows", *found))
    outside = st.sampled_from([("mail",), ("mail", "retry"), ("charge",), ("charge", "retry")])
    blocks = draw(st.lists(rows | outside, min_size=1, max_size=4))
    answers = st.lists(st.sampled_from(ANSWERS), min_size=1, max_size=3)
    return blocks, draw(answers), draw(answers), draw(st.lists(DEATHS, max_size=3))


def nodes_of(blocks: list[Block]) -> dict[str, Any]:
    """Return the chain of nodes of these blocks. The names of those of block 2 begin with b2."""
    made: dict[str, Any] = {}
    for at, (kind, *words) in enumerate(blocks):
        found: list[Any] = []
        if kind == "rows":
            found = [BEGIN, *(_row(word, f"{at}.{place}") for place, word in enumerate(words)), COMMIT]
        else:
            found = [("retry", {"attempts": 2})] if words else []
            mail = ("email", {"to": "'a@example.com'", "subject": f"'{at}'", "body": "'b'"})
            found.append(mail if kind == "mail" else ("payment", {"provider": "stripe"}))
        made |= {f"b{at}n{place}": node for place, node in enumerate(found)}
    return made


def _row(word: str, text: str) -> Any:
    what, _, order = word.partition(" ")
    of_order = {"entity": "Order", "filter": {"id": f"'{order}'"}}
    return {
        "log": log(text),
        "stop": ("assert", {"expression": "false"}),
        "note": ("write", {**of_order, "operation": "update", "fields": {"note": f"'{text}'"}}),
        "sink": ("write", {**of_order, "operation": "update", "fields": {"total": "-1"}}),
        "pay": ("write", {**of_order, "operation": "transition", "to": "paid"}),
        "cancel": ("write", {**of_order, "operation": "transition", "to": "cancelled"}),
        "remove": ("write", {**of_order, "operation": "softDelete"}),
    }[what]


def after(rows: Rows, at: int, words: list[str]) -> Rows:
    """Return the rows behind a committed block. Raises Refused."""
    orders, lines = {name: dict(row) for name, row in rows[0].items()}, list(rows[1])
    for place, word in enumerate(words):
        what, _, name = word.partition(" ")
        order = orders.get(name, {})
        if what == "stop" or (what != "log" and not order):
            raise Refused
        match what:
            case "log":
                lines.append(f"{at}.{place}")
            case "note":
                order["note"] = f"{at}.{place}"
            case "sink":
                order["total"] = -1.0
            case "remove":
                del orders[name]
            case _:
                if order["status"] != "open":
                    raise Refused
                order["status"] = {"pay": "paid", "cancel": "cancelled"}[what]
    if any(row["total"] < 0 for row in orders.values()):
        raise Refused
    return orders, tuple(lines)


def committed(blocks: list[Block]) -> list[Rows]:
    """Return the rows behind each block, beginning with none of them, up to the block that is refused."""
    start = {name: {"total": 1.0, "note": None, "status": "open"} for name in ORDERS}
    found: list[Rows] = [(start, ())]
    for at, (kind, *words) in enumerate(blocks):
        try:
            found.append(after(found[-1], at, words) if kind == "rows" else found[-1])
        except Refused:
            break
    return found


def rows_of(world: World) -> Rows:
    orders = {row["id"]: {name: row[name] for name in ("total", "note", "status")} for row in world.rows("Order")}
    return orders, tuple(sorted(world.texts()))


def is_sunk(blocks: list[Block]) -> bool:
    """Tell whether a block makes a total negative and removes that order, which no invariant sees then."""
    return any(f"sink {order}" in block and f"remove {order}" in block for block in blocks for order in ORDERS)


@pytest.mark.rule("run-kills", "001-rollback")
@settings(max_examples=examples(150), deadline=None)
@given(stories())
def test_a_run_leaves_a_prefix_of_its_blocks_and_does_each_effect_once(tmp_path_factory, story) -> None:
    blocks, mails, payments, deaths = story
    if is_sunk(blocks):
        return
    script = {str(at): list(mails) for at in range(len(blocks))}
    mail, shop = Outside(False, script), Outside(True, {"charge": list(payments)})
    with tempfile.TemporaryDirectory(dir=tmp_path_factory.getbasetemp()) as name:
        result = played(Path(name), blocks, mail, shop, deaths)
        world, again = of_process(Path(name), mail, shop, None), None
        states = committed(blocks)
        rows, run = rows_of(world), result.run
        if result.state != "failed" or effects(mail, shop):
            again = call(world, blocks)
        audit = [each[2] for each in world.audit()]
        world.database.engine.dispose()

    event(f"{result.state}, {'after a death' if deaths else 'undisturbed'}")
    assert again is None or (again.run, again.state, again.output) == (run, result.state, result.output)
    assert rows in states, "half a block"
    last = len(blocks) if result.state == "succeeded" else len(states) - 1
    assert set((mail.happened + shop.happened).values()) <= {1}, "twice"
    done = {int(at) for at in mail.happened}
    assert all(rows in states[at:] for at in done), "an effect before the rows ahead of it"
    charged, refunded = effects_of(shop, "charge"), effects_of(shop, "refund")
    wanted = Counter(kind for kind, *_ in blocks[:last])
    match result.state:
        case "succeeded":
            assert rows == states[len(blocks)]
            assert (wanted["mail"], wanted["charge"], 0) == (len(done), charged, refunded)
        case "failed":
            assert (charged, rows) == (refunded, rows), "a charge of a failed run is owed"
        case "unknown":
            assert mail.lost or shop.lost or deaths
            assert 0 == refunded
        case other:
            raise AssertionError(other)
    assert result.state in audit
    assert 1 == len({*audit} & {"succeeded", "unknown"}) or result.state == "failed"


def played(folder: Path, blocks: list[Block], mail: Outside, shop: Outside, deaths: list[Death]) -> RunResult:
    """Call the tool in processes that die, the last of which lives, and return its answer."""
    first = world_in(folder)
    for order in ORDERS:
        first.add("Order", order, customerId="s1", total=1)
    first.database.engine.dispose()
    for turn, death in zip(count(), [*deaths, None], strict=False):
        world = of_process(folder, mail, shop, death)
        try:
            return resumed(world, blocks) if turn % 2 else call(world, blocks)
        except Died:
            pass
        finally:
            world.database.engine.dispose()
    raise AssertionError


def of_process(folder: Path, mail: Outside, shop: Outside, death: Death | None) -> World:
    ports = Ports(email=mail, payments={"stripe": shop})
    world = world_in(folder, ports=ports, lease_seconds=-60.0, audit=Entries(folder / "audit"))
    mail.life = shop.life = Life(death)
    for name in ("before_cursor_execute", "commit"):
        sa.event.listen(world.database.engine, name, lambda *_: mail.life.passes("statement"))
    return world


def call(world: World, blocks: list[Block]) -> RunResult:
    nodes = nodes_of(blocks)
    return world.runs.call(world.flow(nodes, chain(*nodes), idempotencyKey="input.id"), CALL, STAFF)


def resumed(world: World, blocks: list[Block]) -> RunResult:
    """Go on with the run that was left, or make the call anew if it was not stored."""
    nodes = nodes_of(blocks)
    for run in world.unended():
        return world.runs.resume(world.flow(nodes, chain(*nodes), idempotencyKey="input.id"), run)
    return call(world, blocks)


def effects(*providers: Outside) -> int:
    return sum(sum(each.happened.values()) for each in providers)


def effects_of(shop: Outside, operation: str) -> int:
    return sum(name.startswith(operation) for name in shop.happened)
