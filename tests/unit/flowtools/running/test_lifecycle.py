"""How runs get from state to state: each ends, and a person can cancel one that has not, or retry one that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

import oauthbroker.flowtools
from oauthbroker.flowtools.running.approvals import approve, cancel, decline, retry
from oauthbroker.flowtools.running.contract import Call
from oauthbroker.flowtools.running.flow import ReadyFlow
from oauthbroker.flowtools.running.journal import ENDED, RUN, STEP
from oauthbroker.flowtools.running.lifecycle import MOST_TAKES, Lifecycle
from oauthbroker.flowtools.running.ports import AnswerLost, EffectRefused, NotSent
from oauthbroker.flowtools.specification.failures import Actor
from tests.kit.forms import is_long
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import BEGIN, COMMIT, STAFF, World, log, policy, world_in

pytestmark = pytest.mark.rule("run-kills")
CALL: dict[str, Any] = {"id": "a", "amount": 3}
PAY = ("payment", {"provider": "stripe"})
MAIL = ("email", {"to": "input.id", "subject": "'s'", "body": "'b'"})
FAILS = ("assert", {"expression": "input.n == 1.0", "message": "n is not one"})
PAYS = {"a": BEGIN, "b": log("one"), "c": COMMIT, "p": PAY}
ADA: dict[str, Any] = {"by": "ada", "account": "root"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = world_in(tmp_path, policies=[policy(action="escalate", condition="amount > 5")])
    yield made
    made.database.engine.dispose()


def stored(world: World, **values: Any) -> str:
    """Store a run that another process has taken, and let its lease be over."""
    with world.database.transaction() as connection:
        connection.execute(sa.update(RUN).values(**{"state": "running", "due": 1.0, "ended": None, **values}))
        return str(connection.execute(sa.select(RUN.c.id)).scalar_one())


def pass_time(world: World) -> None:
    with world.database.transaction() as connection:
        connection.execute(sa.update(RUN).where(RUN.c.due.is_not(None)).values(due=1.0))


def ends(world: World, run: str) -> list[str]:
    return world.entries.ends(run)


def take(world: World, flow: ReadyFlow | None, run: str) -> tuple[str, str | None]:
    pass_time(world)
    result = world.runs.work(run, lambda _: flow)
    return result.state, result.code


def test_one_module_writes_the_states_of_runs() -> None:
    writers = set()
    for file in Path(oauthbroker.flowtools.__file__).parent.rglob("*.py"):
        if re.search(r"sa\.update\(RUN\)|RUN\.update\(", file.read_text("utf-8")):
            writers.add(file.name)
    assert {"lifecycle.py", "erasing.py"} == writers, "erasing removes personal data of ended runs"


def test_a_call_without_a_key_that_began_nothing_is_abandoned_and_never_done(world: World) -> None:
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"))
    world.runs._checked(flow, _taken())  # its process dies here
    (run,) = world.unended()
    assert ("failed", "abandoned") == take(world, flow, run)
    assert ([], ["failed"]) == (world.texts(), ends(world, run))


def _taken(**more: Any) -> Call:
    return Call(data=CALL, actor=STAFF, takes=True, **more)


@pytest.mark.parametrize("more", [{"key": "k"}, {"call": "c"}, {"event": "e"}], ids=str)
def test_a_call_that_comes_back_for_its_run_is_done_by_another_process(world: World, more: Any) -> None:
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"))
    world.runs._checked(flow, _taken(**more))
    (run,) = world.unended()
    assert ("succeeded", None) == take(world, flow, run)
    assert (["x"], ["succeeded"]) == (world.texts(), ends(world, run))


@pytest.mark.parametrize("broken", ["version", "input", "actor", "notes", "steps"])
@pytest.mark.parametrize("began", [False, True])
def test_a_run_that_cannot_be_read_ends_after_some_takes(world: World, broken: str, began: bool) -> None:
    flow = world.flow(PAYS, chain(*PAYS), idempotencyKey="input.id")
    world.runs.call(flow, CALL, STAFF)
    run = stored(world, **({broken: "{"} if broken in {"input", "actor", "notes"} else {}))
    with world.database.transaction() as connection:
        if not began:
            connection.execute(sa.delete(STEP))
        elif broken == "steps":
            connection.execute(sa.update(STEP).values(value="{"))
    given = None if broken == "version" else flow
    states = [take(world, given, run)[0] for _ in range(2 * MOST_TAKES + 4)]
    found = world.runs.find(run)
    assert found.state in ENDED
    if began and broken not in {"steps", "notes"}:
        assert ("failed", "runBroken") == (found.state, found.code)
        assert MOST_TAKES <= states.count("running")
        assert "p: it took effect or may have, and was not undone" in found.notes
    assert 1 == len(ends(world, run)[1:]), "the first one is that of the call"


def test_each_take_without_a_step_has_a_longer_lease(world: World) -> None:
    flow = world.flow(PAYS, chain(*PAYS), idempotencyKey="input.id")
    world.runs.call(flow, CALL, STAFF)
    run, leases = stored(world), list[float]()
    for _ in range(4):
        take(world, None, run)
        with world.database.transaction() as connection:
            leases.append((world.runs.find(run).due or 0.0) - world.database.now(connection))
    assert [60, 120, 240, 480] == [round(lease / 10) * 10 for lease in leases]


def test_thousands_of_runs_that_wait_or_cannot_be_read_hide_no_killed_one(world: World) -> None:
    many = 5_000 if is_long() else 300
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"), idempotencyKey="input.id")
    killed = world.runs.accept(flow, CALL, STAFF)
    with world.database.transaction() as connection:
        row = dict(connection.execute(sa.select(RUN)).mappings().one())
        later = {"state": "waiting", "due": row["due"] + 600}
        rows = [{**row, "id": f"p{at}", "key": f"p{at}", **later} for at in range(many)]
        rows += [{**row, "id": f"b{at}", "key": f"b{at}", "digest": "?", "due": 1.0 + at} for at in range(many)]
        connection.execute(sa.insert(RUN), rows)
    looks = 0
    while world.runs.find(killed.id).due is not None:
        looks += 1
        for run, state in world.runs.due(100):
            assert "running" == state
            world.runs.work(run, lambda found: flow if found.digest == flow.tool.source.digest else None)
    assert looks <= many / 100 + 1
    assert ("succeeded", ["x"]) == (world.runs.find(killed.id).state, world.texts())


def test_a_wait_ends_at_its_deadline(world: World) -> None:
    flow = world.flow(PAYS, chain(*PAYS), policies=["p", "paymentRollback"], idempotencyKey="input.id")
    run = str(world.runs.call(flow, {**CALL, "amount": 6}, STAFF).run)
    assert 13 * 86_400 < (world.runs.find(run).due or 0.0) - world.runs.find(run).started
    assert ("failed", "undecided") == take(world, flow, run)
    assert ["failed"] == ends(world, run)


@pytest.mark.parametrize("decide", [approve, decline])
def test_a_decision_behind_its_deadline_is_refused_and_the_run_fails(world: World, decide: Any) -> None:
    flow = world.flow(PAYS, chain(*PAYS), policies=["p", "paymentRollback"], idempotencyKey="input.id")
    run = str(world.runs.call(flow, {**CALL, "amount": 6}, STAFF).run)
    pass_time(world)
    with pytest.raises(ValueError, match="the time for a decision has ended"):
        decide(world.database, run, audit=world.entries, **ADA)
    assert ("failed", "undecided", []) == (*take(world, flow, run), world.shop.sent)
    assert ["escalated", "failed"] == [outcome for _, _, outcome, _ in world.audit()]


def test_a_repeated_call_does_not_wake_a_run_behind_its_deadline(world: World) -> None:
    flow = world.flow(PAYS, chain(*PAYS), policies=["paymentRollback"], idempotencyKey="input.id")
    world.runs.accept(flow, CALL, STAFF)
    stored(world, state="waiting")
    result = world.runs.call(flow, CALL, STAFF)
    assert ("failed", "consentRefused", []) == (result.state, result.code, world.shop.sent)


@pytest.mark.parametrize("where", ["before it begins", "behind a charge", "while it waits"])
def test_a_cancelled_run_ends_and_its_charge_is_refunded(
    world: World, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    nodes = {**PAYS, "m": MAIL}
    policies = ["p", "paymentRollback"]
    flow = world.flow(nodes, chain(*nodes), policies=policies, idempotencyKey="input.id")
    if where == "while it waits":
        run = str(world.runs.call(flow, {**CALL, "amount": 6}, STAFF).run)
        cancel(world.database, run, audit=world.entries, **ADA)
        assert "failed" == world.runs.find(run).state
    elif where == "before it begins":
        run = world.runs.accept(flow, CALL, STAFF).id
        cancel(world.database, run, audit=world.entries, **ADA)
        assert "running" == world.runs.find(run).state
    else:
        monkeypatch.setattr(world.shop, "answers", Cancelling(world))
        run = str(world.runs.call(flow, CALL, STAFF).run)
    take(world, flow, run)
    found = world.runs.find(run)
    assert ("failed", "cancelled") == (found.state, found.code)
    assert "ada (account root) has cancelled it" == found.message
    assert (["failed"], []) == (ends(world, run), world.mail.sent)
    assert (["charge", "refund"] if where == "behind a charge" else []) == [e.operation for e in world.shop.sent]
    with pytest.raises(ValueError, match="is cancelled already: ada"):
        cancel(world.database, run, audit=world.entries, **ADA)


def test_the_second_who_cancels_a_run_is_told_who_has_and_has_no_entry(world: World) -> None:
    """Also at once: both have read the run before the first one has committed."""
    flow = world.flow(PAYS, chain(*PAYS), policies=["paymentRollback"], idempotencyKey="input.id")
    run = world.runs.accept(flow, CALL, STAFF)
    cancel(world.database, run.id, audit=world.entries, **ADA)
    before = len(list(world.entries))
    with pytest.raises(ValueError, match=r"the run is cancelled already: ada \(account root\) has cancelled it"):
        cancel(world.database, run.id, by="bob", account="bob", audit=world.entries)
    with (
        Lifecycle.opened(world.database, world.entries) as ways,
        pytest.raises(ValueError, match="another person has cancelled it"),
    ):
        ways.cancel(run, "bob")
    assert before == len(list(world.entries))


class Cancelling(list[Any]):
    """The answers of a shop. While it is asked, a person cancels the run."""

    def __init__(self, world: World) -> None:
        self.world = world

    def __bool__(self) -> bool:
        for run in self.world.unended():
            if self.world.runs.find(run).cancel is None:
                cancel(self.world.database, run, audit=self.world.entries, **ADA)
        return False


@pytest.mark.rule("000-contract-7", "001-example-6")
def test_a_declined_card_frees_the_key_and_the_next_card_has_another_key_at_the_provider(world: World) -> None:
    """The row that is committed before the charge stays, as the flow says."""
    flow = world.flow(PAYS, chain(*PAYS), policies=["paymentRollback"], idempotencyKey="input.id")
    world.shop.answers = [EffectRefused("declined")]
    first = world.runs.call(flow, CALL, STAFF)
    assert ("failed", "externalFailed") == (first.state, first.code)
    other = world.runs.call(flow, {**CALL, "n": 2}, Actor(id="bob", roles=frozenset({"staff"})))
    assert ("succeeded", None, True) == (other.state, other.code, other.run != first.run), other
    declined, paid = world.shop.sent
    assert declined.key != paid.key
    assert "idempotencyConflict" == world.runs.call(flow, CALL, STAFF).code
    with pytest.raises(ValueError, match="another call has its key"):
        retry(world.database, str(first.run), audit=world.entries, **ADA)


def test_a_declined_card_that_is_retried_and_then_cancelled_frees_the_key(world: World) -> None:
    flow = world.flow(PAYS, chain(*PAYS), policies=["paymentRollback"], idempotencyKey="input.id")
    world.shop.answers = [EffectRefused("declined")]
    run = str(world.runs.call(flow, CALL, STAFF).run)
    retry(world.database, run, audit=world.entries, **ADA)
    cancel(world.database, run, audit=world.entries, **ADA)
    assert ("failed", "cancelled") == take(world, flow, run)
    assert "succeeded" == world.runs.call(flow, {**CALL, "n": 2}, STAFF).state
    declined, paid = world.shop.sent
    assert declined.key != paid.key


@pytest.mark.parametrize("happened", [True, False])
def test_the_note_about_a_lost_charge_is_gone_when_a_person_has_answered_it(world: World, happened: bool) -> None:
    flow = world.flow(PAYS, chain(*PAYS), policies=["paymentRollback"], idempotencyKey="input.id")
    world.shop.answers, world.shop.takes_keys = [AnswerLost("x")], False
    lost = world.runs.call(flow, CALL, STAFF)
    assert ("unknown", 1) == (lost.state, len(lost.notes))
    retry(world.database, str(lost.run), audit=world.entries, **ADA, happened=happened)
    assert ("succeeded", None) == take(world, flow, str(lost.run))
    assert () == world.runs.find(str(lost.run)).notes


@pytest.mark.rule("001-example-6")
@pytest.mark.parametrize("error", [AnswerLost("x"), NotSent("x")], ids=["charge unknown", "mail unknown"])
def test_an_effect_that_may_have_happened_keeps_the_key(world: World, error: Exception) -> None:
    nodes = {"m": MAIL, "p": PAY}
    flow = world.flow(nodes, chain(*nodes), policies=["paymentRollback"], idempotencyKey="input.id")
    world.shop.answers = [error]
    world.runs.call(flow, CALL, STAFF)
    assert "idempotencyConflict" == world.runs.call(flow, {**CALL, "n": 2}, STAFF).code


def test_a_failed_run_is_retried_behind_its_commits_and_an_effect_that_did_not_happen_gets_another_key(
    world: World,
) -> None:
    nodes = {"a": BEGIN, "b": log("one"), "c": COMMIT, "m": MAIL}
    flow = world.flow(nodes, chain(*nodes), idempotencyKey="input.id")
    world.mail.answers = [EffectRefused("no")]
    run = str(world.runs.call(flow, CALL, STAFF).run)
    retry(world.database, run, audit=world.entries, **ADA)
    assert ("succeeded", None) == take(world, flow, run)
    assert (["one"], ["failed", "succeeded"]) == (world.texts(), ends(world, run))
    first, second = world.mail.sent
    assert first.key != second.key
    assert [("retried", "ada (account root)")] == [(o, by) for _, by, o, _ in world.audit() if o == "retried"]
    with pytest.raises(ValueError, match="only a run that failed"):
        retry(world.database, run, audit=world.entries, **ADA)


@pytest.mark.parametrize("happened", [True, False])
def test_an_unknown_run_goes_on_as_a_person_has_found_out(world: World, happened: bool) -> None:
    nodes = {"m": MAIL, "a": BEGIN, "b": log("one")}
    flow = world.flow(nodes, chain(*nodes), idempotencyKey="input.id")
    world.mail.answers = [AnswerLost("x")]
    result = world.runs.call(flow, CALL, STAFF)
    run = str(result.run)
    assert ("unknown", []) == (result.state, world.texts())
    with pytest.raises(ValueError, match="say whether the effect happened"):
        retry(world.database, run, audit=world.entries, **ADA)
    retry(world.database, run, audit=world.entries, **ADA, happened=happened)
    assert ("succeeded", None) == take(world, flow, run)
    assert (["one"], 1 if happened else 2) == (world.texts(), len(world.mail.sent))


def test_a_run_that_was_refunded_or_owes_or_began_nothing_is_not_retried(world: World) -> None:
    nodes = {**PAYS, "f": FAILS}
    flow = world.flow(nodes, chain(*nodes), policies=["paymentRollback"], idempotencyKey="input.id")
    refunded = str(world.runs.call(flow, CALL, STAFF).run)
    world.shop.answers = [{"n": 1}, *[NotSent("x")] * 3]
    owed = str(world.runs.call(flow, {**CALL, "id": "b"}, STAFF).run)
    empty = world.flow({"f": FAILS}, [], name="other")
    nothing = str(world.runs.call(empty, CALL, STAFF).run)
    for run, why in (
        (refunded, "refunded or has to be"),
        (owed, "refunded or has to be"),
        (nothing, "call the tool again"),
    ):
        with pytest.raises(ValueError, match=why):
            retry(world.database, run, audit=world.entries, **ADA)


def test_a_retried_run_pays_and_refunds_each_charge_once(world: World) -> None:
    nodes = {"a": BEGIN, "b": log("one"), "c": COMMIT, "p": PAY, "f": FAILS}
    flow = world.flow(nodes, chain(*nodes), policies=["paymentRollback"], idempotencyKey="input.id")
    world.shop.answers = [NotSent("x")]
    run = str(world.runs.call(flow, CALL, STAFF).run)
    retry(world.database, run, audit=world.entries, **ADA)
    assert ("failed", "assertFailed") == take(world, flow, run)
    _, charge, refund = world.shop.sent
    assert ("charge", "refund", charge.key) == (charge.operation, refund.operation, refund.fields["chargeKey"])


def test_an_approved_call_without_a_key_is_not_abandoned(world: World) -> None:
    flow = world.flow({"a": BEGIN, "b": log("x")}, chain("a", "b"), policies=["p"])
    run = str(world.runs.call(flow, {**CALL, "amount": 6}, STAFF).run)
    approve(world.database, run, audit=world.entries, by="ada", account="root")
    assert ("succeeded", None) == take(world, flow, run)


@pytest.mark.parametrize("answer", [float("nan"), object(), ValueError("x")], ids=["NaN", "an object", "an error"])
def test_a_run_ends_after_each_answer_of_an_adapter(world: World, answer: Any) -> None:
    flow = world.flow({"m": MAIL}, [], idempotencyKey="input.id")
    world.mail.answers = [answer]
    result = world.runs.call(flow, CALL, STAFF)
    assert ("unknown", []) == (result.state, world.unended())


def test_an_unforeseen_error_ends_the_run_and_refunds_its_charge(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {**PAYS, "f": FAILS}
    flow = world.flow(nodes, chain(*nodes), policies=["paymentRollback"], idempotencyKey="input.id")

    def fails(*_: Any) -> Any:
        raise OverflowError("the text of an error may hold a value")

    monkeypatch.setattr("oauthbroker.flowtools.running.interpreter.Interpreter._expression", fails)
    result = world.runs.call(flow, CALL, STAFF)
    assert ("failed", "internal", ("p: the charge was refunded",)) == (result.state, result.code, result.notes)
    assert "value" not in str(result.message)
    assert ["failed"] == ends(world, str(result.run))
