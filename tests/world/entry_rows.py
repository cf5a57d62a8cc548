"""Players of the statements on entries, tags, leases, keys, the feed and the timeline."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from oauthbroker.store.format.seal import HEADER
from oauthbroker.store.postgres import entry_statements as entries
from oauthbroker.store.postgres import feed, freshness_checks, leases, rights, sealed_rows, timeline
from oauthbroker.store.postgres.pools import ASK
from tests.world.tables import Place, Rows, Stored, Tables, Values, plays

_JUMP = 100_000
_SEED = slice(5, 21)  # of a record


def _place(values: Values) -> Place:
    return values["kind"], bytes(values["name"])


def _tag(tables: Tables, place: Place, labels: list[str], values: list[bytes]) -> None:
    tables.tag |= {(*place, label, bytes(value)) for label, value in zip(labels, values, strict=True)}


@plays(ASK, "fb7aeae6")
def _ask(_: Tables, __: Values) -> Rows:
    return []


@plays(entries.GET, "d03bdd0c")
def _get(tables: Tables, values: Values) -> Rows:
    row = tables.entry.get(_place(values))
    return [] if row is None else [tuple(row)]


@plays(entries.CREATE, "9c78dffe")
@plays(entries.TAGGED.format(entries.CREATE), "9555be2d")
def _create(tables: Tables, values: Values) -> Rows:
    place = _place(values)
    if place in tables.entry or not tables.seals(values["epoch"]):
        return []
    return _write(tables, place, Stored(1, tables.next_version(), values["record"]), values)


@plays(entries.REPLACE, "f1b3a0e6")
@plays(entries.TAGGED.format(entries.REPLACE), "d9b81d7e")
def _replace(tables: Tables, values: Values) -> Rows:
    place = _place(values)
    before = tables.entry.get(place)
    if before is None or before.generation != values["expect"] or not tables.seals(values["epoch"]):
        return []
    after = Stored(before.generation + 1, tables.next_version(), values["record"])
    return _write(tables, place, after, values)


def _write(tables: Tables, place: Place, row: Stored, values: Values) -> Rows:
    tables.put(place, row)
    _tag(tables, place, values.get("labels", []), values.get("values", []))
    return [(row.version,)]


@plays(entries.DELETE, "eb241043")
def _delete(tables: Tables, values: Values) -> Rows:
    place = _place(values)
    row = tables.entry.get(place)
    if row is None or row.generation != values["expect"]:
        return []
    tables.remove(place)
    return [(True,)]


@plays(entries.SET_ASIDE, "27f0d709")
def _set_aside(tables: Tables, values: Values) -> Rows:
    place = _place(values)
    row = tables.entry.get(place)
    if row is None or row.version != values["version"] or len(tables.set_aside) >= 256:
        return []
    tables.set_aside.append((*place, tables.remove(place).record))
    return [(True,)]


def _page(tables: Tables, places: Iterable[tuple[bytes, Place]], values: Values) -> Rows:
    """Return the entries of these tag values and places, in that order, after the last one of the page before."""
    found = sorted((value, name) for value, (kind, name) in places if kind == values["kind"])
    return [
        (value, name, *tables.entry[values["kind"], name])
        for value, name in islice((each for each in found if each > _last(values)), values["limit"])
    ]


def _last(values: Values) -> tuple[bytes, bytes]:
    return bytes(values["value"]), bytes(values["after"])


@plays(entries.SCAN, "452edc1d")
def _scan(tables: Tables, values: Values) -> Rows:
    return _page(tables, ((values["value"], place) for place in tables.entry), values)


@plays(entries.FIND, "e1f9ffc2")
def _find(tables: Tables, values: Values) -> Rows:
    sought = (values["label"], values["value"])
    return _page(
        tables, ((value, (kind, name)) for kind, name, label, value in tables.tag if (label, value) == sought), values
    )


@plays(entries.LABELLED, "0894fc20")
def _labelled(tables: Tables, values: Values) -> Rows:
    labelled = ((value, (kind, name)) for kind, name, label, value in tables.tag if label == values["label"])
    return _page(tables, labelled, values)


@plays(entries.RETAG, "937a2101")
def _retag(tables: Tables, values: Values) -> Rows:
    row = (*_place(values), values["label"], bytes(values["value"]))
    if row[:2] not in tables.entry or row in tables.tag:
        return []
    tables.tag.add(row)
    return [(True,)]


@plays(entries.UNTAG, "7e58970c")
def _untag(tables: Tables, values: Values) -> Rows:
    place = _place(values)
    row = tables.entry.get(place)
    if row is not None and row.generation == values["expect"]:
        tables.tag -= {(*place, *tag) for tag in zip(values["labels"], map(bytes, values["values"]), strict=True)}
    return []


@plays(entries.COUNT, "45eb5f8d")
def _count(tables: Tables, values: Values) -> Rows:
    return [(sum(kind == values["kind"] for kind, _ in tables.entry),)]


@plays(entries.LEASES, "bc2d03cd")
def _leases(tables: Tables, _: Values) -> Rows:
    held = sum(until >= tables.now() for _, until in tables.lease.values())
    return [(held, len(tables.lease) - held)]


@plays(rights.WRITABLE, "62de3fb4")
def _writable(_: Tables, __: Values) -> Rows:
    return []  # nothing is missing


@plays(entries.BEHIND, "0552ecd9")
def _behind(_: Tables, __: Values) -> Rows:
    return [(True,)]  # the standby of the world is not synchronous


@plays(freshness_checks.ONE, "e9c2c94f")
def _is_newest(tables: Tables, values: Values) -> Rows:
    row = tables.entry.get(_place(values))
    return [(1,)] if row is not None and row.version == values["version"] else []


@plays(freshness_checks._MANY, "0653b1ba")
def _are_newest(tables: Tables, values: Values) -> Rows:
    asked = zip(values["kinds"], values["names"], values["versions"], strict=True)
    rows = [(tables.entry.get((kind, bytes(name))), version) for kind, name, version in asked]
    return [(number,) for number, (row, version) in enumerate(rows, 1) if row is not None and row.version == version]


@plays(leases._TAKE, "ecca4d6f")
def _take(tables: Tables, values: Values) -> Rows:
    owner, until = tables.lease.get(values["name"], (values["owner"], 0.0))
    if owner != values["owner"] and not (values["lapsed"] and until < tables.now()):
        return []
    return _hold(tables, values)


@plays(leases._EXTEND, "49832d6d")
def _extend(tables: Tables, values: Values) -> Rows:
    owner, _ = tables.lease.get(values["name"], (None, 0.0))
    return _hold(tables, values) if owner == values["owner"] else []


def _hold(tables: Tables, values: Values) -> Rows:
    tables.lease[values["name"]] = values["owner"], tables.now() + values["seconds"]
    return [(True,)]


@plays(leases._RELEASE, "21c53164")
def _release(tables: Tables, values: Values) -> Rows:
    if tables.lease.get(values["name"], (None, 0.0))[0] == values["owner"]:
        del tables.lease[values["name"]]
    return []


@plays(timeline._LOOK, "ee8a22c5")
def _look(tables: Tables, values: Values) -> Rows:
    here = f"timeline {tables.timeline:08} "
    known = [(int(name[18:]), tables.now() - at) for name, at in tables.feature.items() if name.startswith(here)]
    first = min((first for first, _ in known), default=None)
    return [(here, first, max((age for _, age in known), default=None), bool(_held(tables, values)))]


@plays(timeline._HELD, "fc35a4a2")
def _held(tables: Tables, values: Values) -> Rows:
    owner, until = tables.lease.get(values["name"], (None, 0.0))
    return [(True,)] if owner == values["owner"] and until > tables.now() else []


@plays(timeline._NOTE, "fcf525c8")
def _note(tables: Tables, _: Values) -> Rows:
    first = 0
    if any(name.startswith("timeline ") for name in tables.feature):
        tables.versions += _JUMP
        first = tables.versions
    tables.feature.setdefault(f"timeline {tables.timeline:08} {first}", tables.now())
    return []


@plays(feed._BEGIN, "fdd12ccc")
def _begin_feed(tables: Tables, _: Values) -> Rows:
    tables.feature.setdefault("feed", tables.now())
    return [(tables.now() - tables.feature["feed"],)]


@plays(feed._TELL, "3ce7e12f")
def _tell(tables: Tables, values: Values) -> Rows:
    tables.notified.append(values["0"])
    return [("",)]


@plays("listen oauthbroker", "02f2bd55")
def _listen(_: Tables, __: Values) -> Rows:
    return []


def _sealed(tables: Tables, table: str, values: Values) -> Rows:
    """Return the key, the generation and the record of a page of one table."""
    if table == "entry":
        rows = [
            (name, row.generation, row.record) for (kind, name), row in tables.entry.items() if kind == values["kind"]
        ]
    else:
        rows = [(row.agent + row.id, 1, row.record) for row in tables.queued.values() if row.record is not None]
    return sorted(row for row in rows if row[0] > values["after"])[: values["limit"]]


def _seeds(tables: Tables, table: str, values: Values) -> Rows:
    page = [(record[_SEED], key) for key, _, record in _sealed(tables, table, values)]
    return [(seed, sum(seed == each for each, _ in page), last) for seed, last in sorted(dict(page).items())]


@plays(sealed_rows._SEEDS.format(**sealed_rows._ENTRIES), "534ab42e")
def _seeds_of_entries(tables: Tables, values: Values) -> Rows:
    return _seeds(tables, "entry", values)


@plays(sealed_rows._SEEDS.format(**sealed_rows._EVENTS), "496d3daa")
def _seeds_of_events(tables: Tables, values: Values) -> Rows:
    return _seeds(tables, "queued", values)


def _others(tables: Tables, table: str, values: Values) -> Rows:
    page = _sealed(tables, table, values)
    return [(key, number, None if record[_SEED] == values["seed"] else record) for key, number, record in page]


@plays(sealed_rows._OTHER_SEED.format(**sealed_rows._ENTRIES), "7ce59651")
def _entries_of_other_seeds(tables: Tables, values: Values) -> Rows:
    return _others(tables, "entry", values)


@plays(sealed_rows._OTHER_SEED.format(**sealed_rows._EVENTS), "00af4eaf")
def _events_of_other_seeds(tables: Tables, values: Values) -> Rows:
    return _others(tables, "queued", values)


def _given(tables: Tables, values: Values) -> list[tuple[bytes, bytes, bytes]]:
    """Return what a statement seals anew: keys, headers and records."""
    columns = zip(values["keys"], values["headers"], values["records"], strict=True)
    return list(columns) if tables.seals(values["epoch"]) else []


@plays(sealed_rows._RESEAL.format(**sealed_rows._ENTRIES), "a4d04579")
def _reseal_entries(tables: Tables, values: Values) -> Rows:
    done: Rows = []
    for key, header, anew in _given(tables, values):
        row = tables.entry.get(place := (values["kind"], key))
        if row is not None and row.record[:HEADER] == header:
            tables.put(place, row._replace(record=anew))
            done.append((True,))
    return done


@plays(sealed_rows._RESEAL.format(**sealed_rows._EVENTS), "f2d9f792")
def _reseal_events(tables: Tables, values: Values) -> Rows:
    done: Rows = []
    for key, header, anew in _given(tables, values):
        row = tables.queued.get(place := (key[:32], key[32:]))
        if row is not None and row.record is not None and row.record[:HEADER] == header:
            tables.queued[place] = row._replace(record=anew)
            done.append((True,))
    return done


@plays(sealed_rows._DOCUMENT, "c1666bdb")
def _document(tables: Tables, _: Values) -> Rows:
    return [] if tables.keyring is None else [(tables.keyring[0],)]


@plays(sealed_rows._REPORT, "5b4bbc22")
def _report(tables: Tables, values: Values) -> Rows:
    now = tables.now()
    lapsed = [each for each, (_, until) in tables.process.items() if until < now and each != values["id"]]
    for each in lapsed:
        del tables.process[each]
    tables.process[values["id"]] = values["mark"], now + values["seconds"]
    return []


@plays(sealed_rows._BEHIND, "1ccad9d7")
def _not_opened(tables: Tables, values: Values) -> Rows:
    now = tables.now()
    return [(sum(mark != values["mark"] and until >= now for mark, until in tables.process.values()),)]


@plays(sealed_rows._LEAVE, "44093aba")
def _leave(tables: Tables, values: Values) -> Rows:
    tables.process.pop(values["id"], None)
    return []
