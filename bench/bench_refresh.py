"""Refreshes: what a hanging provider costs the warm call of another app, and one refresh beside its bare parts.

The hanging provider accepts every refresh of its app and says nothing; a hundred tools wait for it meanwhile.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2

from bench.children import child
from bench.figures import MS, Work, a_round, parser, show, timed
from bench.ours import app_at, with_token
from bench.slow_server import ENDPOINT
from oauthbroker import Turn, TurnAuth, open_broker
from oauthbroker.broker import Broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, Client, Endpoints, IdentityRule, Owner, Redirect
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.observability.logging import json_log
from oauthbroker.records import Grant, Token
from oauthbroker.repository.repository import KINDS, LEASES, Repository, Versioned
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider import FOREVER
from oauthbroker.testing.provider.types import Client as Registration
from oauthbroker.testing.stores import open_file_store

WAITING = 100
FORM = {"grant_type": "refresh_token", "refresh_token": "r" * 200, "client_id": "client", "client_secret": "s" * 40}
BASE = "http://127.0.0.1:8420"
TWO_WRITES = "two durable writes of a grant"
WHOLE = "a whole refresh, provider on this machine"
AT_ONCE = 16


def app(idp: IdentityProvider, name: str) -> App:
    client = idp.register(Registration(name, redirect_uris=(f"{BASE}/oauth/callback/{name}",)))
    return App(
        name=name,
        provider="example",
        flow="authorizationCode",
        subject_mode="user",
        client=Client(client.client_id, client.client_secret),
        endpoints=Endpoints(
            authorization_url=idp.url("/authorize"),
            token_url=idp.url("/token"),
            issuer=idp.base_url,
            jwks_url=idp.endpoints["jwksUrl"],
        ),
        scopes=("read", "write"),
        redirect=Redirect(f"/oauth/callback/{name}", BASE),
        owner=Owner(user_identity=IdentityRule("idToken", "idp:user:{sub}")),
        habits=Habits(always_scopes=("openid",)),
    )


def grant(of: App, subject: str, lives: float, refresh: Secret | None) -> Grant:
    now = datetime.now(UTC)
    token = Token(
        access_token=Secret("t" * 900),
        token_type="bearer",
        refresh_token=refresh,
        expires_at=now + timedelta(seconds=lives),
        lifetime_seconds=3600,
    )
    scopes = ("read", "write")
    return Grant(
        app=of.name,
        provider="example",
        subject=subject,
        flow="authorization_code",
        scopes=scopes,
        token=token,
        created_at=now,
        updated_at=now,
        registration=of.registration,
    )


def asking(broker: Broker, name: str, subject: str) -> Callable[[], Awaitable[object]]:
    oauth = broker.oauth(Turn("planner", "1", auth=TurnAuth(subjects={"user": subject})))
    return lambda: oauth.get_access_token(name)


async def beside_a_hanging_provider(idp: IdentityProvider, broker: Broker, *, quick: bool) -> None:
    repeats, batch = (20, 50) if quick else (400, 200)
    warm = asking(broker, "well", "idp:user:well")
    await warm()
    before = await rounds_of(warm, repeats, batch)
    idp.script.client("hangs").refresh.hang(times=FOREVER)
    waiters = [asyncio.ensure_future(asking(broker, "hangs", f"idp:user:{number}")()) for number in range(WAITING)]
    await idp.wait_for("refresh_token", 8)
    during = await rounds_of(warm, repeats, batch)
    waiting = sum(not waiter.done() for waiter in waiters)
    for waiter in waiters:
        waiter.cancel()
    await asyncio.gather(*waiters, return_exceptions=True)
    show("warm call, all providers well", before, "us")
    beside = {"warm call, all providers well": before}
    show("warm call, another app's provider hangs", during, "us", beside, waiting=waiting)


async def rounds_of(work: Work, rounds: int, batch: int) -> list[float]:
    """Return the microseconds of one call, round by round; others may run between two rounds."""
    samples = []
    for _ in range(rounds):
        samples.append(await a_round(work, batch))
        await asyncio.sleep(0)
    return samples


async def of_one_refresh(folder: Path, *, quick: bool) -> None:
    """Measure a whole refresh beside its bare parts: two durable writes (the intent, the token), and one answer of the
    provider, which runs in a process of its own. Each request opens a connection, the bare one too. Then the share of
    one refresh in the time that 16 take together."""
    repeats = 20 if quick else 200
    store = open_file_store(folder)
    repository, subject = Repository(store), "idp:user:alone"
    settings = Settings(store_root=str(folder / "store"), weaken=frozenset({"plainHttpProvider"}))
    log = json_log(io.StringIO(), SystemClock())
    with child("bench.slow_server", "0") as provider:
        port = provider.answer()["port"]
        bundle, url = Bundle(settings, {"mail": app_at(port)}), f"http://127.0.0.1:{port}{ENDPOINT}"
        versioned = await repository.save_grant(with_token(port, subject, "t" * 900, 3600), expect=0)
        writes, answers, refreshes = list[float](), list[float](), list[float]()
        bare = httpx2.AsyncClient(limits=httpx2.Limits(max_keepalive_connections=0))
        async with open_broker(bundle, env={}, store=store, log=log, background=False) as broker, bare:
            ask = asking(broker, "mail", subject)
            for number in range(repeats):
                began = time.perf_counter()
                versioned = await repository.save_grant(versioned.record, expect=versioned.generation)
                await expired(repository, port, subject, number, versioned.generation)
                writes.append((time.perf_counter() - began) * MS)
                answers.append(await timed(bare.post(url, data=FORM), MS))
                refreshes.append(await timed(ask(), MS))
                versioned = await refreshed(repository, subject)
            together = await at_once(repository, broker, port, rounds=max(2, repeats // AT_ONCE))
    show(TWO_WRITES, writes, "ms")
    show("the provider's answer alone", answers, "ms")
    show(WHOLE, refreshes, "ms", {TWO_WRITES: writes})
    rest = [whole - answer for whole, answer in zip(refreshes, answers, strict=True)]
    show("a whole refresh without the provider's answer", rest, "ms", {TWO_WRITES: writes})
    show(f"each of {AT_ONCE} refreshes at once, provider on this machine", together, "ms", {WHOLE: refreshes})


async def at_once(repository: Repository, broker: Broker, port: int, *, rounds: int) -> list[float]:
    generations, took = {f"idp:user:at-once-{number}": 0 for number in range(AT_ONCE)}, list[float]()
    for number in range(rounds):
        for subject, generation in generations.items():
            await expired(repository, port, subject, number, generation)
        asked = asyncio.gather(*(asking(broker, "mail", subject)() for subject in generations))
        took.append(await timed(asked, MS) / AT_ONCE)
        for subject in generations:
            generations[subject] = (await refreshed(repository, subject)).generation
    return took


async def expired(repository: Repository, port: int, subject: str, number: int, generation: int) -> None:
    """Store a grant whose token has ended, over the one of this generation: one durable write, and no read."""
    ended = with_token(port, subject, str(number).ljust(900, "t"), -60)
    await repository.save_grant(ended, expect=generation)


async def refreshed(repository: Repository, subject: str) -> Versioned[Grant]:
    versioned = await repository.grant(GrantKey("mail", subject))
    if versioned is None or versioned.record.token is None or not versioned.record.token.lives(60, datetime.now(UTC)):
        raise SystemExit("the call was not a refresh")
    return versioned


async def main(*, quick: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, IdentityProvider() as idp:
        root = Path(folder)
        store = open_file_store(root, kinds=KINDS, lease_kinds=LEASES)
        repository = Repository(store)
        well, hangs = app(idp, "well"), app(idp, "hangs")
        settings = Settings(
            store_root=str(root / "store"),
            weaken=frozenset({"plainHttpProvider"}),
            limits=Limits(provider_seconds=3 if quick else 20),
        )
        bundle = Bundle(settings, {"well": well, "hangs": hangs})
        await repository.save_grant(grant(well, "idp:user:well", 3600, None), expect=0)
        for number in range(WAITING):
            refresh = Secret(f"a-refresh-token-{number}")
            await repository.save_grant(grant(hangs, f"idp:user:{number}", -1, refresh), expect=0)
        log = json_log(io.StringIO(), SystemClock())
        async with open_broker(bundle, env={}, store=store, log=log, background=False) as broker:
            await beside_a_hanging_provider(idp, broker, quick=quick)
    with tempfile.TemporaryDirectory() as folder:
        await of_one_refresh(Path(folder), quick=quick)


if __name__ == "__main__":
    asyncio.run(main(quick=parser().parse_args().quick))
