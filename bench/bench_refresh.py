"""Refreshes: what a hanging provider costs the warm call of another app, and one refresh beside its bare parts.

The hanging provider accepts every refresh of its app and says nothing; a hundred tools wait for it meanwhile.
"""

from __future__ import annotations

import asyncio
import io
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bench.figures import MS, Work, a_round, parser, show, timed
from oauthbroker import Turn, TurnAuth, open_broker
from oauthbroker.broker import Broker
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import Bundle, Client, Endpoints, IdentityRule, OAuthApp, Owner, Redirect
from oauthbroker.model.habits import Habits
from oauthbroker.model.results import AuthorizationRequired
from oauthbroker.model.settings import Limits, Settings
from oauthbroker.observability.logging import json_log
from oauthbroker.records import Grant, Token
from oauthbroker.repository.repository import KINDS, LEASES, Repository
from oauthbroker.testing import Browser, IdentityProvider, connect_through
from oauthbroker.testing.provider import FOREVER
from oauthbroker.testing.provider.nouns import Client as Registration
from oauthbroker.testing.stores import open_file_store

WAITING = 100
BASE = "http://127.0.0.1:8420"
ALICE = "idp:user:U234567"


def app(idp: IdentityProvider, name: str) -> OAuthApp:
    client = idp.register(Registration(name, redirect_uris=(f"{BASE}/oauth/callback/{name}",)))
    return OAuthApp(
        name=name,
        provider="example",
        flow="authorizationCode",
        subject_mode="user",
        client=Client(client.client_id, client.client_secret),
        endpoints=Endpoints(
            idp.url("/authorize"), idp.url("/token"), issuer=idp.base_url, jwks_url=idp.endpoints["jwksUrl"]
        ),
        scopes=("read", "write"),
        redirect=Redirect(f"/oauth/callback/{name}", BASE),
        owner=Owner(user_identity=IdentityRule("idToken", "idp:user:{sub}")),
        habits=Habits(always_scopes=("openid",)),
    )


def grant(of: OAuthApp, subject: str, lives: float, refresh: Secret | None) -> Grant:
    now = datetime.now(UTC)
    token = Token(Secret("t" * 900), "bearer", refresh, now + timedelta(seconds=lives), 3600)
    scopes = ("read", "write")
    return Grant(
        of.name, "example", subject, "authorization_code", scopes, token, now, now, registration=of.registration
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


async def of_one_refresh(idp: IdentityProvider, broker: Broker, repository: Repository, *, quick: bool) -> None:
    """Measure a whole refresh beside the two durable writes that it needs: the intent and the token."""
    repeats = 20 if quick else 200
    ask = asking(broker, "well", ALICE)
    link = await ask()
    if not isinstance(link, AuthorizationRequired):
        raise SystemExit("the account is connected already")
    await connect_through(Browser(apps={BASE: broker.web}), idp, link.authorization_url)
    refreshes, writes = [], []
    for _ in range(repeats):
        held = await repository.grant("well", ALICE)
        if held is None or held.record.token is None or held.record.refresh_state.ended:
            raise SystemExit("the refresh left no grant")
        ended = replace(held.record.token, expires_at=datetime.now(UTC) - timedelta(seconds=1))
        began = time.perf_counter()
        held = await repository.save_grant(held.record, expect=held.generation)
        await repository.save_grant(replace(held.record, token=ended), expect=held.generation)
        writes.append((time.perf_counter() - began) * MS)
        refreshes.append(await timed(ask(), MS))
    if idp.count("refresh_token", "well") != repeats:
        raise SystemExit("not every call was a refresh")
    show("two durable writes of a grant", writes, "ms")
    show("a whole refresh, provider on this machine", refreshes, "ms", {"two durable writes of a grant": writes})


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
            await of_one_refresh(idp, broker, repository, quick=quick)


if __name__ == "__main__":
    asyncio.run(main(quick=parser().parse_args().quick))
