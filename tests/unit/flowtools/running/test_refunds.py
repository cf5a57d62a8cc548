"""A charge of a run that fails later is refunded, once, also by another process."""

from __future__ import annotations

from typing import Any

import pytest

from oauthbroker.flowtools.running.interpreter import Interpreter
from oauthbroker.flowtools.running.ports import AnswerLost, EffectRefused, NotSent, Ports
from oauthbroker.flowtools.specification.failures import FlowFailed
from tests.unit.flowtools.kit import chain
from tests.unit.flowtools.run_kit import STAFF, Remembering, World, world_in

pytestmark = pytest.mark.rule("001-example-4", "001-rollback")
CALL = {"id": "a", "amount": 3}
PAY = ("payment", {"provider": "stripe"})
FAILS = ("assert", {"expression": "false", "message": "no"})
ESCALATED = "escalate paymentRollback: A payment has to be compensated."


class Died(KeyboardInterrupt):
    """The process is gone."""


def world_of(tmp_path: Any, *answers: Any, takes_keys: bool = True) -> World:
    shop = Remembering(*answers, takes_keys=takes_keys)
    mail = Remembering()
    made = world_in(tmp_path, ports=Ports(payments={"stripe": shop}, email=mail), lease_seconds=-60.0)
    made.shop, made.mail = shop, mail
    return made


def test_a_charge_is_refunded_by_its_answer_and_its_key_when_a_later_step_fails(tmp_path):
    world = world_of(tmp_path, {"paymentId": "x1"})
    flow = world.flow({"p": PAY, "c": FAILS}, chain("p", "c"), idempotencyKey="input.id")
    first, again = (world.runs.call(flow, CALL, STAFF) for _ in range(2))
    assert ("failed", "assertFailed", ("p: the charge was refunded",)) == (first.state, first.code, first.notes)
    charge, refund = world.shop.sent
    assert first == again
    assert ("charge", "refund", "payment") == (charge.operation, refund.operation, refund.kind)
    assert {"charge": {"paymentId": "x1"}, "chargeKey": charge.key} == refund.fields
    assert charge.key != refund.key


def test_charges_are_refunded_in_the_other_order_and_refunds_are_not(tmp_path):
    world = world_of(tmp_path, *({"n": at} for at in range(3)))
    back = ("payment", {"provider": "stripe", "action": "refund"})
    nodes = {"p": PAY, "b": back, "q": PAY, "c": FAILS}
    world.runs.call(world.flow(nodes, chain(*nodes)), CALL, STAFF)
    assert [{"n": 2}, {"n": 0}] == [each.fields["charge"] for each in world.shop.sent[3:]]


def test_a_charge_that_may_not_have_happened_is_reported_and_not_refunded(tmp_path, monkeypatch):
    world = world_of(tmp_path, Died())
    flow = world.flow({"p": PAY}, [], idempotencyKey="input.id")
    with pytest.raises(Died):
        world.runs.call(flow, CALL, STAFF)
    world.shop.answers = []
    monkeypatch.setattr(Interpreter, "enforce", lambda _: refuse())
    result = world.runs.call(flow, CALL, STAFF)
    assert ("failed", (ESCALATED,), 1) == (result.state, result.notes, len(world.shop.sent))


def refuse() -> None:
    raise FlowFailed("invariantBroken", "no")


def test_a_charge_that_was_refused_is_not_refunded(tmp_path):
    world = world_of(tmp_path, EffectRefused("no"))
    result = world.runs.call(world.flow({"p": PAY}, []), CALL, STAFF)
    assert ("externalFailed", (), 1) == (result.code, result.notes, len(world.shop.sent))


REFUNDS: dict[str, tuple[list[Any], bool, int, bool]] = {
    "sent at the third try": ([NotSent("x"), EffectRefused("x", again=True)], False, 3, True),
    "never sent": ([NotSent("x")] * 5, False, 3, False),
    "refused": ([EffectRefused("x")], False, 1, False),
    "lost": ([AnswerLost()], False, 1, False),
    "lost, with keys": ([AnswerLost()], True, 2, True),
    "lost each time": ([AnswerLost()] * 5, True, 3, False),
}


@pytest.mark.parametrize("name", REFUNDS)
def test_a_refund_is_tried_again_if_that_is_safe_and_else_a_person_is_told(tmp_path, name):
    answers, takes_keys, sent, refunded = REFUNDS[name]
    world = world_of(tmp_path, {}, *answers, takes_keys=takes_keys)
    result = world.runs.call(world.flow({"p": PAY, "c": FAILS}, chain("p", "c")), CALL, STAFF)
    assert ("p: the charge was refunded" if refunded else ESCALATED,) == result.notes
    refunds = [each for each in world.shop.sent if each.operation == "refund"]
    assert (sent, 1) == (len(refunds), len({each.key for each in refunds}))


@pytest.mark.rule("run-kills")
@pytest.mark.parametrize(("takes_keys", "sent"), [(True, 2), (False, 1)])
def test_a_run_that_is_killed_in_a_refund_goes_on_to_refund_and_not_to_run(tmp_path, takes_keys, sent):
    world = world_of(tmp_path, {}, Died(), takes_keys=takes_keys)
    world.mail.answers = [EffectRefused("no")]
    nodes = {"p": PAY, "m": ("email", {"to": "input.id", "subject": "'s'", "body": "'b'"})}
    flow = world.flow(nodes, chain(*nodes), idempotencyKey="input.id")
    with pytest.raises(Died):
        world.runs.call(flow, CALL, STAFF)
    result = world.runs.call(flow, CALL, STAFF)
    assert ("failed", "externalFailed", "m: no") == (result.state, result.code, result.message)
    assert ("p: the charge was refunded" if takes_keys else ESCALATED,) == result.notes
    assert (["charge"] + ["refund"] * sent, 1) == ([each.operation for each in world.shop.sent], len(world.mail.sent))
