"""What every adapter of payments or SMS promises (extra `flowtools`). Subclass it in your tests, with three fixtures:

class TestAcmeShop(PaymentAdapterContract):
    @pytest.fixture
    def adapter(self) -> Adapter:
        return acme_shop({"account": "a1"}, Secret("key"))
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from oauthbroker.flowtools.running.ports import Adapter, AnswerLost, Effect, EffectRefused, NotSent

CHARGE = Effect(
    kind="payment",
    operation="charge",
    fields={"amount": 12.5, "currency": "EUR"},
    key="0" * 40,
    seconds=5.0,
    at="2026-11-26T00:00:00Z",
)
TEXT = replace(CHARGE, kind="sms", operation="", fields={"to": "+4930123456", "body": "Paid"})


class SmsAdapterContract:
    """`adapter` is the one under test, against a stand-in of its provider. The provider of `unreachable` cannot be
    reached. The one of `silent` takes the effect and ends the connection."""

    effect = TEXT

    @pytest.fixture
    def adapter(self) -> Adapter:
        raise NotImplementedError

    @pytest.fixture
    def unreachable(self) -> Adapter:
        raise NotImplementedError

    @pytest.fixture
    def silent(self) -> Adapter:
        raise NotImplementedError

    def test_its_answer_is_json(self, adapter: Adapter) -> None:
        answer = adapter.send(self.effect)
        assert json.loads(json.dumps(answer, allow_nan=False)) == answer

    def test_one_that_takes_keys_answers_a_repeated_key_as_before(self, adapter: Adapter) -> None:
        assert isinstance(adapter.takes_keys, bool)
        if adapter.takes_keys:
            answers = [adapter.send(replace(self.effect, key=digit * 40)) for digit in "112"]
            assert answers[0] == answers[1] != answers[2]

    def test_an_effect_that_was_certainly_not_sent_says_so(self, unreachable: Adapter) -> None:
        with pytest.raises(NotSent):
            unreachable.send(self.effect)

    def test_a_lost_answer_is_no_failure(self, silent: Adapter) -> None:
        with pytest.raises(AnswerLost):
            silent.send(self.effect)

    def test_what_the_provider_does_not_take_is_refused(self, adapter: Adapter) -> None:
        for fields in ({}, {name: {"not": "valid"} for name in self.effect.fields}):
            with pytest.raises(EffectRefused) as refused:
                adapter.send(replace(self.effect, fields=fields, key="3" * 40))
            assert refused.value.again is False


class PaymentAdapterContract(SmsAdapterContract):
    """As `SmsAdapterContract`, and a charge can be refunded by its answer and its key."""

    effect = CHARGE

    def test_a_charge_is_refunded_by_its_answer(self, adapter: Adapter) -> None:
        charged = adapter.send(self.effect)
        fields = {"charge": charged, "chargeKey": self.effect.key}
        refund = replace(self.effect, operation="refund", fields=fields, key="4" * 40)
        answer = adapter.send(refund)
        if adapter.takes_keys:
            assert adapter.send(refund) == answer

    def test_a_refund_of_no_charge_is_refused(self, adapter: Adapter) -> None:
        fields = {"charge": {"unknown": True}, "chargeKey": "5" * 40}
        with pytest.raises(EffectRefused):
            adapter.send(replace(self.effect, operation="refund", fields=fields, key="6" * 40))
