"""The token call, warm and cold, against the least any safe broker must do, taken in the same run.

The warm limit is: stat the file, write one audit line, build the answer. The second warm limit writes that line as a
chain must that several processes share: lock, look where the file ends, MAC, write, unlock. The cold limit is: open,
read and close the record's file, derive its key, decrypt and parse it.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from pydantic_core import from_json

from bench.figures import Work, in_turn, parser, show_in_turn
from bench.hasty import Hasty
from oauthbroker import Turn, TurnAuth
from oauthbroker.audit.chain import START, AuditKeys
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import Bundle, Client, Endpoints, IdentityRule, OAuthApp, Owner, Redirect
from oauthbroker.model.settings import Settings
from oauthbroker.records import Grant, Token
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.testing.stores import open_file_store
from oauthbroker.wiring.opening import open_running

SUBJECT = "idp:user:U1"


def app() -> OAuthApp:
    return OAuthApp(
        name="mail",
        provider="example",
        flow="authorizationCode",
        subject_mode="user",
        client=Client("client"),
        endpoints=Endpoints(authorization_url="https://idp.example/authorize", token_url="https://idp.example/token"),
        scopes=("read", "write"),
        redirect=Redirect("/oauth/callback/mail", "http://127.0.0.1:8420"),
        owner=Owner(user_identity=IdentityRule("tokenResponse", "idp:user:{id}")),
    )


def grant(subject: str) -> Grant:
    now = datetime.now(UTC)
    token = Token(access_token=Secret("t" * 900), token_type="bearer", refresh_token=Secret("r" * 200))
    scopes = ("read", "write")
    made_with = app().registration
    return Grant(
        app="mail",
        provider="example",
        subject=subject,
        flow="authorization_code",
        scopes=scopes,
        token=token,
        created_at=now,
        updated_at=now,
        registration=made_with,
    )


def warm_limits(store: FileStore, file: Path, log: int) -> dict[str, Work]:
    """The least that any way has to do: with a plain line of audit, and with one of a chain."""
    entry = {"at": "2026-11-21T00:00:00.000000Z", "type": "TokenIssued", "grant": "g" * 70, "agent": "planner"}
    stat = file.stat
    line, seal, last = json.dumps(entry).encode(), AuditKeys(store.mac).chain, START.mac

    async def plain() -> object:
        stat()
        os.write(log, line)
        return {"scopes": ("read", "write")}

    async def chained() -> object:
        nonlocal last
        stat()
        os.lseek(log, 0, os.SEEK_END)
        last = seal(last + line)
        os.write(log, b'%b,"mac":"%b"}\n' % (line, last))
        return {"scopes": ("read", "write")}

    return {"warm: limit, stat and a line": plain, "warm: limit, stat and a chained line": chained}


def cold_limit(store: FileStore, file: Path) -> dict[str, Work]:
    ring = store.keyring.ring
    size = file.stat().st_size

    async def cold() -> object:
        descriptor = os.open(file, os.O_RDONLY)
        body = os.read(descriptor, size)
        os.close(descriptor)
        return from_json(ring.unseal("grants", file.name, body)[1])

    return {"cold: limit, read, open and parse": cold}


async def fill(root: Path, many: int) -> None:
    store = open_file_store(root, fs=Hasty())
    repository = Repository(store)
    for number in range(many):
        await repository.save_grant(grant(f"idp:user:other-{number}"), expect=0)
    await store.close()


async def main(*, quick: bool) -> None:
    repeats, batch, many = (20, 50, 100) if quick else (400, 200, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = open_file_store(root, kinds=KINDS, lease_kinds=LEASES)
        repository = Repository(store)
        await fill(root, many)
        versioned = await repository.save_grant(grant(SUBJECT), expect=0)
        file = root / "store" / "data" / "grants" / versioned.entry.key.name
        bundle = Bundle(Settings(store_root=str(root / "store")), {"mail": app()})
        log = os.open(root / "limit.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        async with open_running(bundle, env={}, clock=SystemClock(), store=store, background=False) as running:
            turn = Turn("planner", "1", auth=TurnAuth(subjects={"user": SUBJECT}))
            oauth = running.broker.oauth(turn)
            await asyncio.sleep(0.1)

            async def warm() -> object:
                return await oauth.get_access_token("mail")

            async def cold() -> object:
                running.parts.repository._cache.clear()  # noqa: SLF001  (what a fresh process finds)
                return await running.broker.oauth(turn).get_access_token("mail")

            ours = "ctx.oauth.get_access_token"
            works = {**warm_limits(store, file, log), f"warm: {ours}": warm}
            show_in_turn(await in_turn(works, repeats, batch), grants=many + 1)
            works = {**cold_limit(store, file), f"cold: {ours}": cold}
            show_in_turn(await in_turn(works, repeats, batch), grants=many + 1)
        os.close(log)


if __name__ == "__main__":
    asyncio.run(main(quick=parser().parse_args().quick))
