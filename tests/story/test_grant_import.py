"""Move: another broker that takes over the grants of one serves the same tokens."""

from __future__ import annotations

import asyncio
import io
import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oauthbroker import Ready
from oauthbroker.audit import GrantImported
from oauthbroker.core.clock import to_iso
from oauthbroker.grants.import_lines import Incoming, validate
from oauthbroker.records import Grant
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.forms import examples
from tests.kit.running_broker import SCOPES, Harness, global_app, running, turn, user_app

PEOPLE = ("idp:user:U1", "idp:user:U2", "idp:user:가")
TEAMS = ("idp:team:T1", "idp:team:T2")
SECRET = st.text("abcXYZ019-._~+/=", min_size=24, max_size=40)
PAIR = st.sampled_from([*(("mail", who) for who in PEOPLE), *(("team", who) for who in TEAMS)])
LIFE = st.integers(min_value=-7200, max_value=90 * 86400)
FACTS = st.tuples(SECRET, SECRET, LIFE, st.sets(st.sampled_from(SCOPES)))


def exported(grant: Grant) -> dict[str, Any]:
    token = grant.token
    assert token is not None
    assert token.refresh_token is not None
    line: dict[str, Any] = {
        "app": grant.app,
        "subject": grant.subject,
        "refreshToken": token.refresh_token.reveal(),
        "scopes": list(grant.scopes),
        "grantedAt": to_iso(grant.created_at),
    }
    if token.access_token and token.expires_at is not None:
        line |= {"accessToken": token.access_token.reveal(), "expiresAt": to_iso(token.expires_at)}
    return line


def validated(harness: Harness, lines: list[dict[str, Any]]) -> list[Incoming]:
    stream = io.BytesIO("\n".join(map(json.dumps, lines)).encode())
    found = validate(stream, harness.broker.bundle.apps, harness.clock.now())
    assert [] == found.problems
    return found.incoming


async def taken(harness: Harness, lines: list[dict[str, Any]]) -> list[str]:
    return [await harness.broker.grants.importing.import_grant(incoming) for incoming in validated(harness, lines)]


async def everything(harness: Harness) -> list[dict[str, Any]]:
    lines = [exported(versioned.record) async for versioned in harness.repository.grants()]
    return sorted(lines, key=lambda line: (line["app"], line["subject"]))


async def served(harness: Harness, line: dict[str, Any]) -> str | None:
    """The token of a tool that asks for the granted scopes; None where it must wait or refresh."""
    mode = {"user": None, "team": None} | {"user" if line["app"] == "mail" else "team": line["subject"]}
    result = await harness.ask(line["app"], line["scopes"], turn(**mode), min_ttl_seconds=0)
    return result.access_token.reveal() if isinstance(result, Ready) else None


def line_of(pair: tuple[str, str], facts: tuple[str, str, int, set[str]], clock: TestClock) -> dict[str, Any]:
    refresh, access, life, scopes = facts
    return {
        "app": pair[0],
        "subject": pair[1],
        "refreshToken": refresh,
        "accessToken": access,
        "expiresAt": to_iso(clock.now() + timedelta(seconds=life)),
        "scopes": [scope for scope in SCOPES if scope in scopes],
        "grantedAt": to_iso(clock.now() - timedelta(days=3)),
    }


async def _moves(idp: IdentityProvider, made: dict[tuple[str, str], tuple[str, str, int, set[str]]]) -> None:
    apps = [user_app(idp), global_app(idp)]
    clock = TestClock()
    lines = sorted((line_of(*item, clock) for item in made.items()), key=lambda line: (line["app"], line["subject"]))
    there = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=clock)  # there is one default store at a time
    async with (
        running(idp, apps, clock=clock, background=False, store=there) as old,
        running(idp, apps, clock=clock, background=False) as new,
    ):
        assert ["imported"] * len(lines) == await taken(old, lines)
        assert lines == await everything(old)
        assert ["imported"] * len(lines) == await taken(new, await everything(old))
        assert ["there"] * len(lines) == await taken(new, await everything(old))
        assert await everything(old) == await everything(new)
        for line in lines:
            alive = made[line["app"], line["subject"]][2] > 0
            first, second = await served(old, line), await served(new, line)
            assert first == second == (line["accessToken"] if alive else None)
        assert len(lines) == sum(isinstance(entry, GrantImported) for entry in new.audit.entries)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(PAIR, FACTS, max_size=5))
def test_the_same_tokens_are_served_after_a_move(
    identity_provider: IdentityProvider, made: dict[tuple[str, str], tuple[str, str, int, set[str]]]
) -> None:
    asyncio.run(_moves(identity_provider, made))


async def test_an_import_pins_what_a_login_would_have_pinned(identity_provider: IdentityProvider) -> None:
    """So that a later login with another account is refused as usual."""
    apps = [user_app(identity_provider), global_app(identity_provider)]
    async with running(identity_provider, apps, background=False) as harness:
        await harness.connected("team", of=turn())
        by_login = await harness.grant("team", "idp:team:T111")
        assert by_login is not None
        lines = [
            {"app": "team", "subject": "idp:team:T222", "refreshToken": "r-1"},
            {"app": "mail", "subject": "idp:user:U1", "refreshToken": "r-2", "account": "U1"},
            {"app": "mail", "subject": "idp:user:U2", "refreshToken": "r-3"},
        ]
        await taken(harness, lines)
        team = await harness.grant("team", "idp:team:T222")
        known, unknown = await harness.grant("mail", "idp:user:U1"), await harness.grant("mail", "idp:user:U2")
        assert team is not None
        assert known is not None
        assert unknown is not None
        assert by_login.pinned == (identity_provider.issuer, "idp:team:T111")
        assert team.pinned == (identity_provider.issuer, "idp:team:T222")
        assert known.pinned == (identity_provider.issuer, "U1")
        assert unknown.pinned is None, "the next login pins it"
