"""The upgrade step "queues": an index in one piece becomes a head and segments.

The segments are written first, and the head takes the place of the old index last. A run that was killed is repeated:
the old index is still there, and the segments are written anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.records import codec
from oauthbroker.records.event_queue import Head, Segment, Settled, items_in, newest, segments_of
from oauthbroker.repository.queue_parts import KIND, QueueParts
from oauthbroker.repository.versioned import opened
from oauthbroker.store.format.port import Entry, Store

SEPARATOR = "\x1f"


async def split_queues(store: Store) -> None:
    """Split every queue index of the first format. Idempotent. A damaged one is rebuilt at its first use."""
    parts = QueueParts(store, _ignore)
    async for entry in store.scan(KIND):
        old = old_queue(entry)
        if old is not None:
            await _split(store, parts, entry, *old)


def old_queue(entry: Entry) -> tuple[Head, list[Segment]] | None:
    """Return an index of the first format as the parts that take its place; None for a part of the new format, or for
    damage. The head names no agent if the queue has no events."""
    with suppress(BrokerError):
        return opened(_converted, entry)
    return None


async def _split(store: Store, parts: QueueParts, entry: Entry, head: Head, segments: Sequence[Segment]) -> None:
    for segment in segments:
        await parts.drop(head.agent, segment.number)
        await parts.put(head.agent, segment.number, segment.to_plaintext(), expect=0)
    await store.put(entry.key, head.to_plaintext(), expect=entry.generation)


def _converted(body: bytes) -> tuple[Head, list[Segment]]:
    old = codec.decode("EventQueue", body)["spec"]
    waiting, dead = items_in(old["waiting"]), items_in(old["dead"])
    agent = next((item.address.split(SEPARATOR)[1] for item in (*waiting, *dead)), "")
    segments = segments_of(agent, waiting, 1)
    head = Head(
        agent, tuple(each.number for each in segments), len(segments) + 1, retired=(), dead=dead, settled=_settled(old)
    )
    return head, segments


def _settled(old: Mapping[str, Any]) -> tuple[Settled, ...]:
    leases = [Settled(id=each["id"], lease=each["lease"], done=each["done"]) for each in old.get("settled", ())]
    known = {each.id for each in leases if each.done}
    removed = [Settled(id=event_id, lease=None, done=True) for event_id in old["done"] if event_id not in known]
    return newest(replace(each, order=order) for order, each in enumerate([*removed, *leases], start=1))


def _ignore(_place: str, _code: Code) -> None:
    """Ignore damage: a damaged segment of a run that was killed is replaced."""
