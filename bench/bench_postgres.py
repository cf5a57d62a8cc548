"""What the store in PostgreSQL costs, beside the bare statements on a connection of the same driver.

The server is a private one on a Unix socket, with its disk synced.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import psycopg

from bench.bench_token_call import SUBJECT, app, grant
from bench.figures import in_turn, parser, show_failure, show_in_turn
from oauthbroker import Turn, TurnAuth
from oauthbroker.audit.memory import AuditList
from oauthbroker.core.clock import SystemClock
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Settings
from oauthbroker.repository.repository import Repository
from oauthbroker.wiring.opening import open_running
from tests.kit import postgres

BODY = b"x" * 1500
READ = "select record from oauthbroker.entry where kind = %s and name = %s"
WRITE = "update oauthbroker.entry set record = %s, generation = generation + 1 where kind = %s and name = %s"


async def main(server: postgres.Server, *, quick: bool) -> None:
    rounds, batch = (3, 5) if quick else (40, 25)
    url = server.new_database("bench")
    with tempfile.TemporaryDirectory() as folder:
        store = postgres.open_postgres_store(url, Path(folder))
        key, bare = store.key("sessions", "ours"), store.key("sessions", "bare")
        entry = await store.put(key, BODY, expect=0)
        await store.put(bare, BODY, expect=0)
        row = (bare.kind, bytes.fromhex(bare.name))
        connection = await psycopg.AsyncConnection.connect(url.reveal(), autocommit=True)

        async def write() -> None:
            nonlocal entry
            entry = await store.put(key, BODY, expect=entry.generation)

        async def one_row() -> None:
            await (await connection.execute(READ, row)).fetchone()

        reads = {"postgres: one select": one_row, "postgres: store.get": lambda: store.get(key)}
        show_in_turn(await in_turn(reads, rounds, batch))
        writes = {
            "postgres: one update": lambda: connection.execute(WRITE, (BODY * 2, *row)),
            "postgres: store.put": write,
        }
        show_in_turn(await in_turn(writes, rounds, batch))

        await Repository(store).save_grant(grant(SUBJECT), expect=0)
        bundle = Bundle(Settings(store_root=folder), {"mail": app()})
        async with open_running(
            bundle, env={}, clock=SystemClock(), store=store, audit=AuditList(), background=False
        ) as running:
            turn = Turn("planner", "1", auth=TurnAuth(subjects={"user": SUBJECT}))
            oauth = running.broker.oauth(turn)
            calls = {
                "postgres: one select, by turns": one_row,
                "postgres: warm token call": lambda: oauth.get_access_token("mail"),
            }
            show_in_turn(await in_turn(calls, rounds, batch))
        await connection.close()


if __name__ == "__main__":
    if postgres.binaries() is None:
        show_failure("postgres: store.put", f"this machine lacks {postgres.LACKS}")
    else:
        with postgres.server("fsync=on") as running_server:
            asyncio.run(main(running_server, quick=parser().parse_args().quick))
