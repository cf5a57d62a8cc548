"""Brokers that forward events, and what tests ask of them."""

from __future__ import annotations

from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oauthbroker.broker import Broker
from oauthbroker.core.secret import Secret
from oauthbroker.model.forwarders import Forwarder, Webhook
from oauthbroker.testing import Canaries
from oauthbroker.testing.webhooks import WebhookReceiver
from tests.kit.running_broker import turn

AGENT = "planner"


def signing_secret(name: bytes = b"one") -> Secret:
    """A secret of Standard Webhooks that must leave nowhere."""
    secret = Secret(f"whsec_{b64encode(name.ljust(24, b'.')).decode()}")
    Canaries.active().add(secret, "a webhook's secret")
    return secret


def to_webhook(receiver: WebhookReceiver, *agents: str, networks: Sequence[str] = (), ca: str = "") -> Forwarder:
    to = Webhook(url=receiver.url, secrets=tuple(receiver.secrets))
    return Forwarder(name="hook", agents=agents or (AGENT,), to=to, networks=tuple(networks), ca=ca)


async def enqueue(broker: Broker, numbers: Iterable[int], *, instances: int = 3, agent: str = AGENT) -> list[str]:
    """Queue events with these numbers, each for the instance that its number gives. Return their ids."""
    of = [turn(instance=f"thread {number % instances}", agent=agent) for number in numbers]
    return [
        await broker.events.enqueue(agent, "tool.completed", {"n": number}, turn=each, idempotency_key=str(number))
        for number, each in zip(numbers, of, strict=True)
    ]


def first_numbers(events: Iterable[Mapping[str, Any]]) -> dict[str, list[int]]:
    """Return the numbers that each instance got, repetitions left out, in the order in which they first came."""
    found, seen = defaultdict[str, list[int]](list), dict[str, Any]()
    for event in events:
        if event["eventId"] not in seen:
            found[event["instanceKey"]].append(event["payload"]["n"])
        assert seen.setdefault(event["eventId"], event) == event, "the same id is the same event"
    return dict(found)


def in_order(numbers: Iterable[int], *, instances: int = 3) -> dict[str, list[int]]:
    """Return what `first_numbers` gives if nothing is lost and all is in order."""
    found = defaultdict[str, list[int]](list)
    for number in numbers:
        found[f"thread {number % instances}"].append(number)
    return dict(found)
