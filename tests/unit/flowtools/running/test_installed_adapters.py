"""Adapters of other packages, and a shop under the contract that all of them keep."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker import BrokerError, Code, Secret
from oauthbroker.flowtools.running.ports import Adapter, AnswerLost, Effect, EffectRefused, NotSent
from oauthbroker.flowtools.serving.kinds import GROUPS, FlowAdapterSpec, installed_adapter
from oauthbroker.testing.flow_adapter_contract import PaymentAdapterContract, SmsAdapterContract

pytestmark = pytest.mark.rule("000-types-providers")


class Acme:
    """A provider in this process. `fault` is raised behind an effect, as a lost connection would be."""

    takes_keys = True

    def __init__(self, settings: Mapping[str, Any], secret: Secret | None) -> None:
        self.settings, self.secret = settings, secret
        self.answers: dict[str, Any] = {}
        self.fault: Exception | None = None

    def send(self, effect: Effect) -> Any:
        if isinstance(self.fault, NotSent):
            raise self.fault
        if not self._is_valid(effect):
            raise EffectRefused("the shop does not take it")
        answer = self.answers.setdefault(effect.key, {"id": f"acme-{len(self.answers)}"})
        if self.fault:
            raise self.fault
        return answer

    def _is_valid(self, effect: Effect) -> bool:
        if effect.operation == "refund":
            return bool(self.answers.get(effect.fields["chargeKey"]) == effect.fields["charge"])
        return any(isinstance(effect.fields.get(name), float | str) for name in ("amount", "to"))


def broken(settings: Mapping[str, Any], secret: Secret | None) -> Adapter:
    raise RuntimeError("canary")


def leaves(settings: Mapping[str, Any], secret: Secret | None) -> Adapter:
    raise SystemExit("canary")


def raises(settings: Mapping[str, Any], secret: Secret | None) -> Adapter:
    raise BaseException("canary")  # noqa: TRY002 - a package may do so


def refuses(settings: Mapping[str, Any], secret: Secret | None) -> Adapter:
    raise BrokerError(Code.KEY_UNKNOWN, note="canary")


def nothing(settings: Mapping[str, Any], secret: Secret | None) -> None: ...


@pytest.fixture(autouse=True)
def points(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    functions: list[tuple[str, Any]] = [(each.__name__, each) for each in (broken, leaves, raises, refuses, nothing)]
    for group in GROUPS.values():
        for name, function in (*functions, ("acme", Acme), ("twice", 1), ("twice", 2)):
            point = metadata.EntryPoint(name, f"{__name__}:{name}", group)
            vars(point)["load"] = lambda function=function: function
            vars(point)["dist"] = SimpleNamespace(name="acme-pay") if function == 1 else None
            made.append(point)
    monkeypatch.setattr(metadata, "entry_points", metadata.EntryPoints(made).select)


class Fixtures:
    """The three fixtures of the contract."""

    @pytest.fixture
    def adapter(self) -> Adapter:
        return installed_adapter("payments", FlowAdapterSpec(adapter="acme", settings={"account": "a1"}), Secret("s"))

    @pytest.fixture
    def unreachable(self, adapter: Acme) -> Adapter:
        adapter.fault = NotSent("no way there")
        return adapter

    @pytest.fixture
    def silent(self, adapter: Acme) -> Adapter:
        adapter.fault = AnswerLost("no answer")
        return adapter


class TestInstalledShop(Fixtures, PaymentAdapterContract):
    def test_it_gets_the_settings_and_the_secret_of_the_configuration(self, adapter: Acme) -> None:
        assert adapter.secret is not None
        assert ("a1", "s") == (adapter.settings["account"], adapter.secret.reveal())


class TestInstalledSms(Fixtures, SmsAdapterContract):
    @pytest.fixture
    def adapter(self) -> Adapter:
        return installed_adapter("sms", FlowAdapterSpec(adapter="acme"), None)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("missing", "no installed package has this entry point in oauthbroker.flow_payments"),
        ("twice", "the packages a package and acme-pay both have this entry point"),
        ("broken", f"the adapter broken: RuntimeError at {__file__}:"),
        ("leaves", f"the adapter leaves: SystemExit at {__file__}:"),
        ("raises", f"the adapter raises: BaseException at {__file__}:"),
        ("refuses", "the adapter refuses: keyUnknown"),
        ("nothing", "it made no adapter"),
    ],
)
def test_an_adapter_that_cannot_be_used_is_refused_without_a_word_of_its_package(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        installed_adapter("payments", FlowAdapterSpec(adapter=name), Secret("canary"))
    assert "canary" not in str(refused.value)
