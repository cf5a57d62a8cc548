"""Which providers are left alone for now, and why: in this process, and in the other workers of the store.

Each worker has circuits of its own, because each meets its own failures. It leaves them where the others can read them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Literal

from oauthbroker.core.clock import Clock, from_iso, printed
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import Code
from oauthbroker.refresh.circuit import Circuits, OpenCircuit

CircuitKind = Literal["refreshes", "revocations", "device codes"]
CIRCUIT_KINDS: tuple[CircuitKind, ...] = ("revocations", "device codes", "refreshes")
Left = list[Any]  # [kind, app, grant, code, until, failures], as JSON


@dataclass(frozen=True, slots=True)
class Seen:
    """One circuit that is open, and in how many workers. Its time and failures are those of the worker that waits
    longest."""

    kind: CircuitKind
    circuit: OpenCircuit
    workers: int = 1


@dataclass(frozen=True, slots=True)
class SharedCircuits:
    """`own` are the circuits of revocations, device codes and refreshes, in this order. `elsewhere` reads what the
    other workers have left."""

    own: Sequence[Circuits]
    clock: Clock
    elsewhere: Callable[[], Awaitable[Iterable[Left]]]

    async def seen(self) -> list[Seen]:
        """Return the open circuits of all workers, each once."""
        found: dict[tuple[str, ...], Seen] = {}
        for each in (*self._here(), *self._of_others(await self.elsewhere())):
            circuit = each.circuit
            place = (each.kind, circuit.app, circuit.grant, circuit.code.value)
            before = found.get(place)
            longest = each if before is None else max(before, each, key=lambda it: it.circuit.seconds_left)
            found[place] = Seen(each.kind, longest.circuit, 1 if before is None else before.workers + 1)
        return list(found.values())

    def left(self) -> list[Left]:
        """Return the open circuits of this process, for the others. They change with the circuits, and not with
        time."""
        now = self.clock.now()
        return [
            [each.kind, it.app, it.grant, it.code.value, printed(until), it.failures]
            for each in self._here()
            for it, until in [(each.circuit, now + timedelta(seconds=each.circuit.seconds_left + 0.5))]
        ]

    def _here(self) -> list[Seen]:
        return [
            Seen(kind, each)
            for kind, circuits in zip(CIRCUIT_KINDS, self.own, strict=True)
            for each in circuits.open_now()
        ]

    def _of_others(self, left: Iterable[Left]) -> list[Seen]:
        """Return the circuits of others. Unreadable and closed ones are left out."""
        now, found = self.clock.now(), list[Seen]()
        for each in left:
            with suppress(ValueError, TypeError):
                kind, app, grant, code, until, failures = each
                seconds = (from_iso(until) - now).total_seconds()
                if seconds > 0 and kind in CIRCUIT_KINDS:
                    known, count = Code(code), int(failures)
                    circuit = OpenCircuit(app=app, grant=grant, code=known, seconds_left=seconds, failures=count)
                    found.append(Seen(kind, circuit))
        return found
