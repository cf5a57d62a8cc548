"""A token that was issued to a caller, with all on which that decision depends, so that the same call is answered again
without deciding anew."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from oauthbroker.audit import TokenInjected, TokenIssued
from oauthbroker.audit.port import RepeatedWrite
from oauthbroker.core.clock import LONG_AGO
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.token_results import Ready
from oauthbroker.model.turn import Turn
from oauthbroker.observability.metrics import Counted
from oauthbroker.records import Grant
from oauthbroker.records.provider_data import visible_to_tools
from oauthbroker.records.refresh_state import RefreshState
from oauthbroker.repository.repository import Entry

_TEXTS = frozenset({str})
OWN_BYTES = 1024  # an issuance and its parts, without their texts


class Carrier(NamedTuple):
    """The request that carries a token: its method, and its host as the request names it."""

    method: str
    host: str


Words = tuple[str, tuple[str, ...] | None, int | None, Carrier | None]


@dataclass(slots=True, eq=False, kw_only=True)
class Issuance:
    """A token of one version of a grant. `write` keeps its audit entry once more, and it is counted under `counted`.
    `since` and `until` bound the times at which the decision is the same. `text` is its printed answer, which ends
    with it."""

    app: App
    subject: str
    accounts: Mapping[str, Any]
    grant: Grant
    entry: TokenIssued | TokenInjected
    write: RepeatedWrite
    counted: Counted
    ready: Ready
    version: Entry | None = None
    since: datetime = LONG_AGO
    until: datetime = LONG_AGO
    text: Secret | None = None

    def fits(self, turn: Turn, apps: Mapping[str, App]) -> bool:
        """Return whether the configuration, the turn's subject and its accounts are the same. A runtime may exchange
        them."""
        app, auth = self.app, turn.auth
        if apps.get(app.name) is not (app.base or app) or auth is None or auth.accounts != self.accounts:
            return False
        return auth.subjects.get(app.subject_mode) == self.subject

    def size_with(self, words: Words) -> int:
        """Return about how many bytes it takes with its key: its texts twice, for the audit entry's line and `text`."""
        entry, ready = self.entry, self.ready
        names = entry.app, entry.grant, entry.agent, entry.tool, entry.turn, entry.instance
        data = (repr(each) for each in (*ready.provider_data, *ready.provider_data.values()))
        texts = (ready.access_token.reveal(), *ready.scopes, *names, *data, words[0], *(words[1] or ()))
        return OWN_BYTES + 2 * sum(sys.getsizeof(text) for text in texts)

    def printed_by(self, printer: Callable[[Ready], str]) -> str:
        """Return the answer as the printer prints it, the first time only. Call it with one printer."""
        if self.text is None:
            self.text = Secret(printer(self.fresh()))
        return self.text.reveal()

    def fresh(self) -> Ready:
        """Return an answer of its own if it has data of the provider. A tool may change that in one answer, and it
        reaches no other."""
        if not self.ready.provider_data:
            return self.ready
        return replace(self.ready, provider_data=visible_to_tools(self.app, self.grant))


def as_issued(app: App, grant: Grant) -> Grant:
    """Return the grant with what an issuance needs of it: no refresh token, and only the data that tools get."""
    token = None if grant.token is None else replace(grant.token, refresh_token=None)
    return replace(
        grant, token=token, refresh_state=RefreshState(), outbox=(), provider_data=visible_to_tools(app, grant)
    )


def words_of(app_name: str, scopes: object, ttl: object, carrier: Carrier | None = None) -> Words | None:
    """Return the key of a call's words. None for unusual arguments, which are checked each time: their own code runs
    when they are compared, and `True` equals 1."""
    if type(app_name) is not str or not (ttl is None or type(ttl) is int):
        return None
    if scopes is None:
        return app_name, None, ttl, carrier
    if type(scopes) is not list and type(scopes) is not tuple:
        return None
    kept = tuple(scopes)
    return (app_name, kept, ttl, carrier) if _TEXTS.issuperset(map(type, kept)) else None
