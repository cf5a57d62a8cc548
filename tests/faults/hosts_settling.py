"""The quiet after the trouble on several hosts: the events that are left are consumed, and every grant comes alive."""

from __future__ import annotations

import time
from typing import Any

from oauthbroker.core.errors import BrokerError
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
from tests.faults.broker_worker import subject_of
from tests.faults.hosts_model import Facts, Pair
from tests.faults.hosts_worker import CONSUMER, now
from tests.faults.storm_kit import People, Provider
from tests.faults.storm_worker import fingerprint, word_of

SETTLE = 90.0


async def settle(people: People, pairs: list[Pair], broker: Any, facts: Facts) -> dict[Pair, str]:
    """Consume the events that are left, and bring every grant to life. Return the pairs that do not come alive, each
    with its last answer."""
    dead, until = dict.fromkeys(pairs, "nothing"), time.monotonic() + SETTLE
    while (dead or facts.missing_events() or facts.missing_ends()) and time.monotonic() < until:
        for agent in (CONSUMER, "planner"):
            await _drain(broker, agent, facts)
        answers = {pair: await _answer(people, pair, facts) for pair in dead}
        dead = {pair: _reported(answer) for pair, answer in answers.items() if not _is_alive(answer)}
    return dead


async def last_of(pair: Pair, broker: Any, provider: Provider, answer: str) -> str:
    """Return the last `answer`, the grant and the last requests of a pair that does not come alive, as one text."""
    app, person = pair
    reported = [f"answered {answer}"]
    async for view in broker.grants.views(app, subject_of(person)):
        record = await broker.grants.record(view.id)
        reported.append(
            f"health {view.health}, ended {view.ended or 'not'}, lost {view.lost}, token lives {view.token_lives}, "
            f"expires {view.expires_at}, updated {view.updated_at}, intent {record and record.refresh_state.intent}"
        )
    return "; ".join([*reported, *await provider.ask("latest", app, person)])


async def _drain(broker: Any, agent: str, facts: Facts) -> None:
    with_trouble = 0
    while with_trouble < 3:
        try:
            delivery = await broker.events.lease(agent, wait=0.5)
            if delivery is None:
                return
            payload, key = delivery.event.payload, delivery.event.target.instance_key
            seen = [key, payload.get("number", 0), payload.get("authSessionId", "none"), time.monotonic()]
            facts.hear(["received", *map(str, seen)])
            await delivery.ack()
        except BrokerError:
            with_trouble += 1


async def _answer(people: People, pair: Pair, facts: Facts) -> TokenResult:
    asked_at, result = now(), await people.ask(*pair)
    facts.hear(["told", "people", word_of(result), *map(str, pair), fingerprint(result), asked_at, now()])
    if isinstance(result, AuthorizationRequired):
        asked = await people.agree(*pair)
        if asked is not None:
            facts.hear(["granted", asked.auth_session_id, *map(str, pair), now()])
    return result


def _is_alive(answer: TokenResult) -> bool:
    return isinstance(answer, Ready) and not answer.degraded


def _reported(answer: TokenResult) -> str:
    wait = f", again after {answer.retry_after_seconds} s" if isinstance(answer, Failed) else ""
    return word_of(answer) + wait
