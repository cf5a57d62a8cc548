"""Players of the statements of queues. Times are aware; `%(now)s` is the world's where a caller gives none."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from oauthbroker.core.clock import LONG_AGO
from oauthbroker.store.postgres.queue_statements import STATEMENTS
from tests.world.tables import Queued, Rows, Tables, Values, plays

_TOLD = "queue"


def _now(tables: Tables, values: Values) -> datetime:
    return values["now"] or LONG_AGO + timedelta(seconds=tables.now())


def _later(tables: Tables, values: Values) -> datetime:
    return _now(tables, values) + timedelta(seconds=values["seconds"])


def _mine(tables: Tables, values: Values) -> Queued | None:
    return tables.queued.get((values["agent"], values["id"]))


def _leased(tables: Tables, values: Values) -> Queued | None:
    row = _mine(tables, values)
    return row if row is not None and row.state == "waiting" and row.lease == values["lease"] is not None else None


def _of(tables: Tables, agent: bytes, *states: str) -> list[Queued]:
    """Return the rows of an agent in these states, in the order of their places."""
    found = [row for row in tables.queued.values() if row.agent == agent and row.state in states]
    return sorted(found, key=lambda row: row.place)


def _set(tables: Tables, row: Queued, **changes: Any) -> Queued:
    tables.queued[row.agent, row.id] = changed = row._replace(**changes)
    return changed


def _is_followed(tables: Tables, over: Queued) -> Rows:
    """Return whether another event of the address waits, and tell consumers then."""
    rows = tables.queued.values()
    followed = any(
        (row.agent, row.address, row.state) == (over.agent, over.address, "waiting") and row.id != over.id
        for row in rows
    )
    if followed:
        tables.notified.append(_TOLD)
    return [(followed, over.state)]


@plays(STATEMENTS["entries"], "286d64ad")
def _entries(tables: Tables, _: Values) -> Rows:
    return [(max((row.version for (kind, _), row in tables.entry.items() if kind == "events"), default=None),)]


@plays(STATEMENTS["unread entries"], "fbe3922a")
def _unread_entries(tables: Tables, values: Values) -> Rows:
    found = [place for place, row in tables.entry.items() if place[0] == "events" and row.version <= values["version"]]
    tables.set_aside += [(*place, tables.remove(place).record) for place in found]
    return []


@plays(STATEMENTS["enqueue"], "461fc606")
def _enqueue(tables: Tables, values: Values) -> Rows:
    return _add(tables, values, {})


@plays(STATEMENTS["take over"], "85dc290e")
def _take_over(tables: Tables, values: Values) -> Rows:
    return _add(tables, values, {name: values[name] for name in ("state", "attempts", "lease", "due")})


def _add(tables: Tables, values: Values, more: dict[str, Any]) -> Rows:
    if not tables.seals(values["epoch"]) or _mine(tables, values) is not None:
        return []
    row = Queued(values["agent"], values["id"], values["address"], tables.next_place(), values["record"])
    _set(tables, row, **more)
    tables.notified.append(_TOLD)
    return [(True,)]


@plays(STATEMENTS["known"], "dcd77d14")
def _known(tables: Tables, values: Values) -> Rows:
    return [(True,)] if _mine(tables, values) is not None else []


@plays(STATEMENTS["waiting"], "a3151f9b")
def _waiting(tables: Tables, values: Values) -> Rows:
    return [(len(_of(tables, values["agent"], "waiting")),)]


@plays(STATEMENTS["lease"], "88df1b94")
def _lease(tables: Tables, values: Values) -> Rows:
    heads = dict[bytes, Queued]()
    for row in _of(tables, values["agent"], "waiting"):
        heads.setdefault(row.address, row)
    now = _now(tables, values)
    for row in heads.values():  # in the order of their places
        if row.due is None or row.due <= now:
            attempts, due = row.attempts + 1, _later(tables, values)
            _set(tables, row, attempts=attempts, lease=values["lease"], due=due)
            return [(row.id, row.record, attempts, due)]
    return []


@plays(STATEMENTS["dead"], "718ad6c7")
def _dead(tables: Tables, values: Values) -> Rows:
    row = _leased(tables, values)
    if row is None:
        return []
    ended = {"state": "dead", "attempts": min(row.attempts, values["most"]), "lease": None, "due": None}
    return _is_followed(tables, _set(tables, row, **ended, place=tables.next_place()))


@plays(STATEMENTS["ack"], "6379c466")
def _ack(tables: Tables, values: Values) -> Rows:
    row = _leased(tables, values)
    if row is None:
        return []
    return _is_followed(tables, _set(tables, row, state="done", due=None, record=None, place=tables.next_place()))


@plays(STATEMENTS["was acked"], "af6aed1a")
def _was_acked(tables: Tables, values: Values) -> Rows:
    row = _mine(tables, values)
    return [(True,)] if row is not None and row.state == "done" and row.lease == values["lease"] else []


@plays(STATEMENTS["nack"], "5ac9e9cd")
def _nack(tables: Tables, values: Values) -> Rows:
    row = _leased(tables, values)
    if row is None:
        return []
    refused, pauses = (*row.refused, values["lease"]), values["pauses"]
    if row.attempts >= values["most"]:
        changes = {"state": "dead", "place": tables.next_place(), "due": None}
    else:
        pause = pauses[min(row.attempts, values["last"]) - 1]
        changes = {"due": _now(tables, values) + timedelta(seconds=pause)}
    return _is_followed(tables, _set(tables, row, refused=refused, lease=None, **changes))


@plays(STATEMENTS["was refused"], "28e4e5b1")
def _was_refused(tables: Tables, values: Values) -> Rows:
    row = _mine(tables, values)
    return [(True,)] if row is not None and values["lease"] in row.refused else []


@plays(STATEMENTS["extend"], "8e6a403f")
def _extend(tables: Tables, values: Values) -> Rows:
    row = _leased(tables, values)
    if row is None:
        return []
    _set(tables, row, due=_later(tables, values))
    return [(True,)]


@plays(STATEMENTS["give back"], "885534b2")
def _give_back(tables: Tables, values: Values) -> Rows:
    row = _leased(tables, values)
    if row is None:
        return []
    _set(tables, row, attempts=row.attempts - 1, lease=None, due=None)
    tables.notified.append(_TOLD)
    return [(True,)]


@plays(STATEMENTS["unsettled"], "fb730d60")
def _unsettled(tables: Tables, values: Values) -> Rows:
    now, rows = _now(tables, values), _of(tables, values["agent"], "waiting")
    return [(row.lease,) for row in rows if row.due is not None and row.due > now and row.lease in values["leases"]]


@plays(STATEMENTS["settled"], "3c692d69")
def _settled(tables: Tables, values: Values) -> Rows:
    asked, rows = set(values["leases"]), [row for row in tables.queued.values() if row.agent == values["agent"]]
    found = {row.lease for row in rows if row.state == "done" and row.lease in asked}
    for row in rows:
        found |= set(row.refused) if asked & set(row.refused) else set()
    return [(lease,) for lease in sorted(each for each in found if each is not None)]


@plays(STATEMENTS["letters"], "c3821f2f")
def _letters(tables: Tables, values: Values) -> Rows:
    found = Rows()
    for agent in sorted({row.agent for row in tables.queued.values()}):
        if values["agent"] in {None, agent}:
            newest_first = _of(tables, agent, "dead")[::-1][: values["most"]]
            found += [(agent, row.id, row.record, row.attempts) for row in newest_first]
    return found


@plays(STATEMENTS["is dead"], "50fb8178")
def _is_dead(tables: Tables, values: Values) -> Rows:
    row = _mine(tables, values)
    return [(True,)] if row is not None and row.state == "dead" else []


@plays(STATEMENTS["revive"], "c2cd8bea")
def _revive(tables: Tables, values: Values) -> Rows:
    row = _mine(tables, values)
    if row is None or row.state != "dead":
        return []
    _set(tables, row, state="waiting", attempts=0, lease=None, due=None, place=tables.next_place())
    tables.notified.append(_TOLD)
    return [(True,)]


@plays(STATEMENTS["drop"], "46c3516c")
def _drop(tables: Tables, values: Values) -> Rows:
    row = _mine(tables, values)
    if row is None or row.state != "dead":
        return []
    _set(tables, row, state="done", record=None, place=tables.next_place())
    return [(True,)]


@plays(STATEMENTS["erase"], "2dcb3ef0")
def _erase(tables: Tables, values: Values) -> Rows:
    for each in values["ids"]:
        new = Queued(values["agent"], each, values["agent"], 0)
        row = tables.queued.get((values["agent"], each), new)
        _set(tables, row, state="done", record=None, lease=None, due=None, refused=(), place=0)
    tables.notified.append(_TOLD)
    return [(True,)] * len(values["ids"])


@plays(STATEMENTS["depths"], "830149d2")
def _depths(tables: Tables, values: Values) -> Rows:
    found, now = Rows(), _now(tables, values)
    for agent in sorted({row.agent for row in tables.queued.values() if row.state != "done"}):
        waiting, dead = _of(tables, agent, "waiting"), _of(tables, agent, "dead")
        leased = sum(row.lease is not None and row.due is not None and row.due > now for row in waiting)
        first = (waiting + dead)[0]
        found.append((len(waiting) - leased, leased, len(dead), first.id, first.record))
    return found


@plays(STATEMENTS["records"], "43851756")
def _records(tables: Tables, values: Values) -> Rows:
    after = values["agent"], values["after"]
    rows = [(*place, row.record) for place, row in tables.queued.items() if row.state != "done" and place > after]
    return sorted(rows)[:64]


@plays(STATEMENTS["record"], "9c024ced")
def _record(tables: Tables, values: Values) -> Rows:
    return [(row.record,) for row in tables.queued.values() if row.id == values["id"] and row.record is not None]


@plays(STATEMENTS["forget"], "a25e44cb")
def _forget(tables: Tables, values: Values) -> Rows:
    newest_first = _of(tables, values["agent"], values["state"])[::-1]
    if len(newest_first) > values["kept"]:
        bound = newest_first[values["kept"]].place
        for row in newest_first:
            if row.place < bound:
                del tables.queued[row.agent, row.id]
    return []
