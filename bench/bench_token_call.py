"""The token call, warm and cold, against the least any safe broker must do, taken in the same run.

The warm limit is: hash the key's cache, stat the file, write one audit line, build the answer. The cold limit is: open,
read and close the record's file, derive its key, decrypt and parse it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from pydantic_core import from_json

from oauthbroker import Turn, TurnAuth, open_broker
from oauthbroker.apps import Bundle, Client, Endpoints, IdentityRule, OAuthApp, Owner, Redirect
from oauthbroker.records import Grant, Token
from oauthbroker.repository import KINDS, LEASES, Repository
from oauthbroker.secret import Secret
from oauthbroker.settings import Settings
from oauthbroker.testing.stores import open_file_store

SUBJECT = "idp:user:U1"


def app() -> OAuthApp:
    return OAuthApp(
        name="mail",
        provider="example",
        flow="authorizationCode",
        subject_mode="user",
        client=Client("client"),
        endpoints=Endpoints("https://idp.example/authorize", "https://idp.example/token"),
        scopes=("read", "write"),
        redirect=Redirect("/oauth/callback/mail", "http://127.0.0.1:8420"),
        owner=Owner(user_identity=IdentityRule("tokenResponse", "idp:user:{id}")),
    )


def grant(subject: str) -> Grant:
    now = datetime.now(UTC)
    token = Token(Secret("t" * 900), "bearer", Secret("r" * 200))
    scopes = ("read", "write")
    made_with = app().registration
    return Grant("mail", "example", subject, "authorization_code", scopes, token, now, now, registration=made_with)


async def spent(work: Callable[[], Awaitable[object]], repeats: int, batch: int) -> tuple[float, float]:
    """(median, 99th percentile) microseconds of one call, over batches."""
    samples = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(batch):
            await work()
        samples.append((time.perf_counter() - began) / batch * 1e6)
    samples.sort()
    return statistics.median(samples), samples[int(len(samples) * 0.99) - 1]


def show(name: str, measured: tuple[float, float], **more: object) -> None:
    print(
        json.dumps({"name": name, "value": round(measured[0], 2), "unit": "us", "p99": round(measured[1], 2), **more})
    )


async def main(*, quick: bool) -> None:
    repeats, batch, many = (20, 50, 100) if quick else (400, 200, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = open_file_store(root, kinds=KINDS, lease_kinds=LEASES)
        repository = Repository(store)
        for number in range(many):
            await repository.save_grant(grant(f"idp:user:other-{number}"), expect=0)
        held = await repository.save_grant(grant(SUBJECT), expect=0)
        settings = Settings(store_root=str(root / "store"))
        bundle = Bundle(settings, {"mail": app()})
        async with open_broker(bundle, env={}, store=store, background=False) as broker:
            turn = Turn("planner", "1", auth=TurnAuth(subjects={"user": SUBJECT}))
            oauth = broker.oauth(turn)
            await asyncio.sleep(0.1)

            file = root / "store" / "data" / "grants" / held.entry.key.name
            audit = os.open(root / "limit.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            line = json.dumps({"at": "2026-11-21T00:00:00Z", "type": "TokenIssued", "grant": "g" * 70}).encode()

            async def warm_limit() -> object:
                file.stat()
                os.write(audit, line)
                return {"scopes": held.record.scopes}

            sealed = file.read_bytes()
            ring = store._ring  # noqa: SLF001  (the limit is measured with the very key schedule)

            async def cold_limit() -> object:
                descriptor = os.open(file, os.O_RDONLY)
                body = os.read(descriptor, len(sealed))
                os.close(descriptor)
                return from_json(ring.unseal("grants", file.name, body)[1])

            async def cold() -> object:
                broker.manager.repository._cache.clear()  # noqa: SLF001  (what a fresh process finds)
                return await oauth.get_access_token("mail")

            async def warm() -> object:
                return await oauth.get_access_token("mail")

            limit = await spent(warm_limit, repeats, batch)
            ours = await spent(warm, repeats, batch)
            show("warm: the limit (stat + audit line)", limit)
            show("warm: ctx.oauth.get_access_token", ours, grants=many + 1, ratio=round(ours[0] / limit[0], 2))
            limit = await spent(cold_limit, repeats, batch)
            ours = await spent(cold, repeats, batch)
            show("cold: the limit (read + open + parse)", limit)
            show("cold: ctx.oauth.get_access_token", ours, grants=many + 1, ratio=round(ours[0] / limit[0], 2))
            os.close(audit)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    asyncio.run(main(quick=parser.parse_args().quick))
