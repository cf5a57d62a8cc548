"""Paused runs of agents, kept in the broker's store: one record for each conversation, its runs by their names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from oauthbroker import AuthorizationRequired, Broker, Turn
from oauthbroker.integrations.consent import connection_of
from oauthbroker.plugins import Background, PluginResources, RunningPlugin

ENDED: Final = "integrations.ended"  # our own event: an authorization ended for which no other event comes
LOOK_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PausedRun:
    """A run that waits for its user. `state` is JSON of the pause. `waits`: auth sessions and their
    connections, `mail` or `mail@work`."""

    name: str
    turn: Turn
    state: Any
    waits: Mapping[str, str]
    pauses: int


class PausedRuns:
    def __init__(self, broker: Broker) -> None:
        self._broker, self._values = broker, broker.plugin_state("integrations")

    async def add(self, turn: Turn, run: str, session_ids: Collection[str], state: Any, *, anew: bool = False) -> None:
        """Keep a run durably: it waits for these sessions, too, or `anew` for these alone. Its state is replaced."""
        waits = {each: await connection_of(self._broker, each) for each in session_ids}
        about = turn.resume_target.to_json()

        def put(there: Any) -> Any:
            before = (there or {}).get(run, {"waits": {}, "pauses": 0})
            number = before["pauses"] + 1
            added = {each: {"app": connection, "pause": number} for each, connection in waits.items()}
            waits_now = added if anew else {**before["waits"], **added}
            return {**(there or {}), run: {"turn": about, "state": state, "pauses": number, "waits": waits_now}}

        await self._values.change(_key(turn), put, subjects=_subjects)
        for session_id in session_ids:
            await self._tell_end(turn, session_id, run)

    async def keep(self, run: PausedRun, state: Any) -> None:
        """Replace the state of a run durably."""

        def put(there: Any) -> Any:
            runs = there or {}
            return {**runs, run.name: {**runs[run.name], "state": state}} if run.name in runs else there

        await self._values.change(_key(run.turn), put)

    async def waiting(self, turn: Turn, session_id: str) -> list[PausedRun]:
        """Return the runs of a conversation that wait for a session."""
        return [run for run in _runs(await self._values.get(_key(turn)) or {}) if session_id in run.waits]

    async def done(self, run: PausedRun) -> None:
        """Remove a run that has gone on. Pauses that it made meanwhile stay."""

        def leave(there: Any) -> Any:
            runs = dict(there or {})
            entry = runs.pop(run.name, {"waits": {}})
            waits = {each: wait for each, wait in entry["waits"].items() if wait["pause"] > run.pauses}
            return (runs | {run.name: {**entry, "waits": waits}} if waits else runs) or None

        await self._values.change(_key(run.turn), leave)

    async def tell_ends(self) -> None:
        """Queue an event for each session that ended while a run still waits for it. The broker's own event may have
        come before the run was kept, and an expired link has none unless `events.expired` says so."""
        async for _, value in self._values.all():
            for run in _runs(value):
                for session_id in run.waits:
                    await self._tell_end(run.turn, session_id, run.name)

    async def _tell_end(self, turn: Turn, session_id: str, run: str) -> None:
        outcome = await self._broker.wait(session_id, timeout=0)
        if outcome.status != "pending":
            key = hashlib.sha256(f"{session_id} {run}".encode()).hexdigest()
            payload = {"authSessionId": session_id}
            await self._broker.events.enqueue(turn.agent_name, ENDED, payload, turn=turn, idempotency_key=key)


async def pause(
    broker: Broker, turn: Turn, asked: AuthorizationRequired, *, run: str, state: Any = None
) -> dict[str, str]:
    """Keep a run durably until its user has consented or not, and return what its host shows:
    `{authorizationUrl, message, sessionId}`.

    `run` names the run within the turn's conversation. `state` is JSON that `resume` gives back, without secrets.
    """
    await PausedRuns(broker).add(turn, run, [asked.auth_session_id], state)
    return shown(asked)


def shown(asked: AuthorizationRequired) -> dict[str, str]:
    """Return what a host shows to the user. It may go into checkpoints, because it holds no token."""
    url, session_id = asked.authorization_url, asked.auth_session_id
    return {"authorizationUrl": url, "message": asked.message, "sessionId": session_id}


@asynccontextmanager
async def open_plugin(broker: Broker, _resources: PluginResources) -> AsyncIterator[RunningPlugin]:
    """Look for ends without an event while the broker runs."""
    yield RunningPlugin(background=[Background(name="ends", seconds=LOOK_SECONDS, work=PausedRuns(broker).tell_ends)])


def _key(turn: Turn) -> str:
    return hashlib.sha256(json.dumps(turn.resume_target.address).encode()).hexdigest()


def _runs(record: Mapping[str, Any]) -> list[PausedRun]:
    return [
        PausedRun(
            name=name,
            turn=Turn.from_json(entry["turn"]),
            state=entry["state"],
            waits={each: wait["app"] for each, wait in entry["waits"].items()},
            pauses=entry["pauses"],
        )
        for name, entry in record.items()
    ]


def _subjects(record: Mapping[str, Any]) -> list[str]:
    return [subject for run in _runs(record) if run.turn.auth for subject in run.turn.auth.subjects.values()]
