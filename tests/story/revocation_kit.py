"""What the tests of ending grants share: brokers on the same files, people who connect, and what a record still holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oauthbroker.apps import OAuthApp
from oauthbroker.audit import GrantRevoked
from oauthbroker.records import Grant
from oauthbroker.results import AuthorizationRequired, Ready
from oauthbroker.testing import IdentityProvider
from tests.faults.broker_kit import Process
from tests.house import ALICE, TEAM, turn
from tests.story.test_recovery import comes_back

Start = Callable[[Iterable[OAuthApp]], Process]


async def ask(process: Process, app: str = "mail", user: str = ALICE, team: str = TEAM) -> Any:
    return await process.broker.oauth(turn(user, team)).get_access_token(app)


async def connected(
    process: Process, idp: IdentityProvider, app: str = "mail", account: str = "alice", **who: Any
) -> Ready:
    asked = await ask(process, app, **who)
    assert isinstance(asked, AuthorizationRequired), asked
    assert 200 == await comes_back(process, idp, asked, account)
    ready = await ask(process, app, **who)
    assert isinstance(ready, Ready), ready
    return ready


async def grant_of(process: Process, app: str = "mail", subject: str = ALICE) -> Grant:
    grant = await process.grant(app, subject)
    assert grant is not None
    return grant


def secret_count(grant: Grant) -> int:
    """How many tokens the record still holds."""
    ended = grant.ended
    own = 0 if grant.token is None or grant.revoked else 1 + (grant.token.refresh_token is not None)
    return own + (len(ended.refresh) + len(ended.access) if ended is not None else 0)


def audited(process: Process) -> list[str]:
    entries: Any = process.broker.audit
    return [entry.provider for entry in entries.entries if isinstance(entry, GrantRevoked)]
