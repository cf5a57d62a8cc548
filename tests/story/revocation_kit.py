"""What the tests of ending grants share: brokers on the same files, people who connect, and what a record still holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from oauthbroker.audit import GrantRevoked
from oauthbroker.model.apps import App
from oauthbroker.model.provider_habits import Revocation
from oauthbroker.records import Grant
from oauthbroker.testing import IdentityProvider
from tests.kit.broker_process import Process
from tests.kit.running_broker import ALICE, user_app

Start = Callable[[Iterable[App]], Process]


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
    entries: Any = process.parts.audit
    return [entry.provider for entry in entries.entries if isinstance(entry, GrantRevoked)]


def apps_of_one_client(idp: IdentityProvider, reach: str = "grant") -> list[App]:
    """Two apps with one client, where a revocation ends all that a person gave that client."""
    mail = user_app(idp, revocation=Revocation(reach=reach))  # type: ignore[arg-type]
    twin = replace(mail, name="twin", redirect=replace(mail.redirect, callback_path="/oauth/callback/twin"))
    idp.change("client-mail", revoke_reach=reach, redirect_uris=(mail.redirect.uri, twin.redirect.uri))
    return [mail, twin]
