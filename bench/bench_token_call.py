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
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from bench.figures import Work, in_turn, parser, show_in_turn
from bench.hasty import Hasty
from oauthbroker import Turn, TurnAuth
from oauthbroker.audit.chain import START, AuditKeys
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.injection.injector import Injector, ToolRequest
from oauthbroker.model.apps import App, Client, Endpoints, IdentityRule, Owner, Redirect
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.settings import Settings
from oauthbroker.model.static_credential import CredentialField, Placement, StaticCredential, packed
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.network.api_transport import ApiLimits
from oauthbroker.records import Grant, Token
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.store.file.file_store import FileStore
from oauthbroker.testing.stores import open_file_store
from oauthbroker.wiring.opening import open_running

SUBJECT = "idp:user:U1"
API = ApiAccess((ApiHost("api.example"),))


def app() -> App:
    return App(
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


def key_app() -> App:
    placement = Placement(kind="headers", texts={"X-Api-Key": "{apiKey}"})
    fields = (CredentialField(name="apiKey", title="API key"),)
    return replace(
        app(),
        name="meter",
        flow="staticCredential",
        scopes=(),
        api=replace(API, injected=True),
        credential=StaticCredential(fields=fields, placement=placement),
    )


def key_grant(subject: str) -> Grant:
    token = Token(access_token=packed({"apiKey": "k" * 40}), token_type="credential", refresh_token=None)
    made_with = key_app().registration
    plain = replace(grant(subject), app="meter", flow="static_credential", scopes=(), registration=made_with)
    return replace(plain, token=token)


class Answers:
    """Answers a request at once, in place of the network."""

    async def send(self, _request: ApiRequest, _limits: ApiLimits) -> Any:
        return self

    status = 200
    headers = ((b"content-type", b"application/json"),)

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b'{"messages":[]}'

    async def aclose(self) -> None:
        """Free nothing."""


def injected(broker: Any, turn: Turn, name: str) -> Work:
    """A request with the token or the key, and its whole answer, without the network."""
    injector: Any = Injector(Answers(), ApiLimits())  # type: ignore[arg-type]
    calls = broker.oauth(turn).injected_calls(name)

    async def work() -> object:
        target = calls.target("GET", "https://api.example/v1/messages")
        answer = await injector.send(calls, target, ToolRequest(headers=[(b"accept", b"application/json")]))
        answer.headers()
        found = [piece async for piece in answer.chunks()]
        await answer.aclose()
        return found

    return work


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
        await repository.save_grant(key_grant(SUBJECT), expect=0)
        apps = {"mail": replace(app(), api=API), "meter": key_app()}
        bundle = Bundle(Settings(store_root=str(root / "store")), apps)
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
            both = {"token": injected(running.broker, turn, "mail"), "key": injected(running.broker, turn, "meter")}
            works = {f"warm: request with an injected {kind}, no network": work for kind, work in both.items()}
            show_in_turn(await in_turn(works, repeats, batch), grants=many + 1)
            works = {**cold_limit(store, file), f"cold: {ours}": cold}
            show_in_turn(await in_turn(works, repeats, batch), grants=many + 1)
        os.close(log)


if __name__ == "__main__":
    asyncio.run(main(quick=parser().parse_args().quick))
