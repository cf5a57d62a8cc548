"""Stores of many grants that are made quickly, for measurements of what an operator does: an installation in files, and
one in PostgreSQL. Their records are sealed as by a broker, and written without waiting for a disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg

from bench import installation
from bench.bench_token_call import grant
from oauthbroker.config import load
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.observability.logging import logger_log
from oauthbroker.repository.grant_tags import GrantTags
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.file.tags import EMPTY, MOST_LINKS
from oauthbroker.store.format.port import Tag, log_damage
from oauthbroker.store.keys.keyed_store import KeyedStore
from oauthbroker.wiring import init_store, with_keys
from oauthbroker.wiring.storage import unlocked

URL = "BENCH_DATABASE_URL"
_LOADED = """
alter table oauthbroker.tag drop constraint tag_kind_name_fkey, drop constraint tag_pkey;
drop index oauthbroker.tag_of_entry;
alter table oauthbroker.entry drop constraint entry_pkey;
"""
_INDEXED = """
alter table oauthbroker.entry add primary key (kind, name);
alter table oauthbroker.tag add primary key (kind, label, value, name);
create index tag_of_entry on oauthbroker.tag (kind, name);
alter table oauthbroker.tag add foreign key (kind, name) references oauthbroker.entry on delete cascade;
"""
_ENTRY = "copy oauthbroker.entry (kind, name, generation, record) from stdin (format binary)"
_TAG = "copy oauthbroker.tag (kind, label, value, name) from stdin (format binary)"

Sealed = tuple[str, bytes, tuple[Tag, ...]]


def make_store(folder: Path, count: int, url: str = "") -> None:
    """Make an installation below `folder` whose store has so many grants; `url` is that of a database with nothing in
    it, which the environment variable `URL` has, too."""
    config = installation.write_config(folder, installation.free_port(), URL if url else "")
    settings = with_keys(load(config).settings, os.environ)
    init_store(settings, os.environ, SystemClock())
    ring = unlocked(settings, os.environ, logger_log())
    store: Any = KeyedStore(ring, OpenedHere(), kinds=KINDS, lease_kinds=LEASES, damage=log_damage)
    some = grant("")

    def sealed() -> Iterator[Sealed]:
        for number in range(count):
            made = replace(some, subject=f"idp:user:{number}")
            key = store.key("grants", *made.key.parts)
            yield key.name, ring.seal(key.kind, key.name, 1, made.to_plaintext()), GrantTags(store).of(made)

    if url:
        _rows(url, sealed())
    else:
        _files(Path(settings.store_root) / "data", sealed())


def _files(data: Path, sealed: Iterator[Sealed]) -> None:
    made, linked, empty = set[Path](), 0, data / "tags" / EMPTY
    (data / "grants").mkdir(mode=0o700, parents=True)
    for name, record, tags in sealed:
        (data / "grants" / name).write_bytes(record)
        (data / "grants" / name).chmod(0o600)
        for tag in tags:
            shard = data / "tags" / f"grants.{tag.label}" / tag.value[:2]
            if shard not in made:
                for folder in (data / "tags", shard.parent, shard):
                    folder.mkdir(mode=0o700, exist_ok=True)
                made.add(shard)
            if linked % MOST_LINKS == 0:  # as the store does: tags take no inodes
                empty.unlink(missing_ok=True)
                empty.touch(0o600)
            (shard / f"{tag.value}.{name}").hardlink_to(empty)
            linked += 1


def _rows(url: str, sealed: Iterator[Sealed]) -> None:
    with ExitStack() as stack:
        first, second = (stack.enter_context(psycopg.connect(url)) for _ in range(2))
        first.execute(_LOADED)
        first.commit()
        entries = stack.enter_context(first.cursor().copy(_ENTRY))
        tagged = stack.enter_context(second.cursor().copy(_TAG))
        entries.set_types(["text", "bytea", "int8", "bytea"])
        tagged.set_types(["text", "text", "bytea", "bytea"])
        for name, record, tags in sealed:
            entries.write_row(("grants", bytes.fromhex(name), 1, record))
            for tag in tags:
                tagged.write_row(("grants", tag.label, bytes.fromhex(tag.value), bytes.fromhex(name)))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_INDEXED)
        connection.execute("vacuum analyze")
