"""The stores that versions of the broker left, for the upgrade tests of all later ones. `make kept-store` adds one.

A store is one JSON file, `tests/vectors/stores/<version>.json`: every file, its key, and what a broker finds in it. It
is written once and never changed. What lies in it has no value: the provider was a script.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oauthbroker import Secret, open_broker
from oauthbroker.broker import Broker
from oauthbroker.core.version import VERSION
from oauthbroker.model.apps import Bundle, Client, Endpoints, IdentityRule, OAuthApp, Owner, Redirect, ToolAuth
from oauthbroker.model.provider_habits import Habits
from oauthbroker.model.settings import Settings
from oauthbroker.testing import Browser, Canaries, IdentityProvider, TestClock, connect_through
from oauthbroker.testing.provider.nouns import Client as Registration
from oauthbroker.wiring import init_store
from tests.kit.running_broker import ALICE, BASE, BOB, turn

FOLDER = Path(__file__).parents[1] / "vectors" / "stores"
MADE_AT = datetime(2026, 1, 31, 9, 10, 10, tzinfo=UTC)
APPS, TOOL = ("mail", "files"), "Tool/mail"
Kept = dict[str, Any]


def settings_of(place: Path) -> Settings:
    return Settings(
        BASE,
        store_root=str(place / "store"),
        key_file=str(place / "test.kek"),
        weaken=frozenset({"plainHttpProvider"}),
    )


def bundle_of(place: Path, endpoints: Mapping[str, str], secrets: Mapping[str, Secret]) -> Bundle:
    """Return the configuration of a kept store, at the provider that it had."""
    app = OAuthApp(
        name="",
        provider="oidc",
        flow="authorizationCode",
        subject_mode="user",
        client=Client("", Secret("none")),
        endpoints=Endpoints(**endpoints),
        scopes=("read", "write"),
        redirect=Redirect("/", BASE),
        owner=Owner(user_identity=IdentityRule("idToken", "idp:user:{sub}")),
        habits=Habits(always_scopes=("openid",)),
    )
    apps = {
        name: replace(
            app,
            name=name,
            client=Client(f"client-{name}", secrets.get(name, Secret("none"))),
            redirect=Redirect(f"/oauth/callback/{name}", BASE),
        )
        for name in APPS
    }
    return Bundle(settings_of(place), apps, {TOOL: (ToolAuth("mail", ("read",)),)})


def unpack(kept: Kept, place: Path) -> None:
    """Write the store to `place/store` and its key to `place/test.kek`."""
    place.mkdir(mode=0o700, exist_ok=True)
    for name in kept["folders"]:
        (place / name).mkdir(mode=0o700)
    for name, text in kept["files"].items():
        (place / name).touch(mode=0o600)
        (place / name).write_bytes(base64.b64decode(text))


async def make(place: Path) -> Kept:
    """Fill a store in every way that a later version has to understand, and return it as JSON."""
    clock = TestClock(MADE_AT, frozen=True)
    with Canaries() as canaries, IdentityProvider(clock=clock, canaries=canaries) as idp:
        said = idp.endpoints
        names = {"authorization_url": "authorizationUrl", "token_url": "tokenUrl", "user_info_url": "userInfoUrl"}
        names |= {"revoke_url": "revokeUrl", "issuer": "issuer", "jwks_url": "jwksUrl"}
        endpoints = {ours: said[theirs] for ours, theirs in names.items()}
        registered = {
            name: idp.register(Registration(f"client-{name}", redirect_uris=(f"{BASE}/oauth/callback/{name}",)))
            for name in APPS
        }
        bundle = bundle_of(place, endpoints, {name: Secret(each.reveal_secret()) for name, each in registered.items()})
        init_store(bundle.settings, {}, clock)
        async with open_broker(bundle, env={}, clock=clock) as broker:
            found = await _filled(broker, idp, clock, canaries)
    return {"madeAt": clock.now().isoformat(), "endpoints": endpoints, "found": found, **_packed(place)}


async def _filled(broker: Broker, idp: IdentityProvider, clock: TestClock, canaries: Canaries) -> Kept:
    """Make grants, one of them revoked, an open request, a turn, a key, a secret, events and a dead letter."""

    async def connect(app: str, account: str, subject: str) -> None:
        asked: Any = await broker.oauth(turn(user=subject)).get_access_token(app)
        browser = Browser(apps={BASE: broker.web}, canaries=canaries)
        page = await connect_through(browser, idp, asked.authorization_url, account)
        assert 200 == page.status, page.text

    await connect("mail", "alice", ALICE)
    for _ in range(5):  # each try fails: a dead letter
        async with asyncio.timeout(30):
            while (delivery := await broker.events.lease("planner", wait=0)) is None:
                await asyncio.sleep(0.01)
        await delivery.nack()
        clock.advance(3600)
    await connect("files", "alice", ALICE)
    await connect("mail", "bob", BOB)
    assert await broker.revoke("mail", subject=BOB)
    asked: Any = await broker.oauth(turn(user=BOB)).get_access_token("files")
    begun = await broker.turns.begin(turn(), tools={TOOL: None})
    _, key = await broker.api_keys.create("runtime", ["runtime"])
    await broker.secrets.put("mail-client", "clientSecret", Secret("of no value"))
    async with asyncio.timeout(30):  # the relay moves the events of two grants and a revocation to the queue
        while (await broker.dead_letters.states())[0].waiting < 3:
            await asyncio.sleep(0.01)
    [state] = await broker.dead_letters.states()
    return {
        "ready": [["files", ALICE]],
        "mustAgree": [["mail", BOB], ["files", BOB]],
        "sessions": [asked.auth_session_id],
        "turnToken": begun.tool_tokens[TOOL].reveal(),
        "apiKey": key.reveal(),
        "secrets": [["mail-client", "clientSecret"]],
        "waiting": state.waiting,
        "dead": [letter.id for letter in await broker.dead_letters.dead("planner")],
    }


def _packed(place: Path) -> Kept:
    every = sorted(path for path in place.rglob("*") if "locks" not in path.relative_to(place).parts[:-1])
    return {
        "folders": [path.relative_to(place).as_posix() for path in every if path.is_dir()],
        "files": {
            path.relative_to(place).as_posix(): base64.b64encode(path.read_bytes()).decode()
            for path in every
            if path.is_file()
        },
    }


def main() -> int:
    """Keep a store of this version. Refuses to replace one."""
    target = FOLDER / f"{VERSION}.json"
    if target.exists():
        print(f"{target.relative_to(Path.cwd())} exists: a store is kept once for each version.", file=sys.stderr)
        return 1
    place = Path(tempfile.mkdtemp(prefix="oauthbroker-store-"))
    try:
        kept = asyncio.run(make(place))
    finally:
        shutil.rmtree(place)
    FOLDER.mkdir(exist_ok=True)
    target.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")
    print(f"kept {target.name}: {len(kept['files'])} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
