"""Issue tokens: the audit entry first, then the token; and issue one again without deciding anew."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from functools import partial
from typing import Any

from oauthbroker.audit import TokenInjected, TokenIssued
from oauthbroker.audit.port import AuditWriter
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.model.scope_ceiling import union_in_app_order
from oauthbroker.model.token_results import Ready
from oauthbroker.observability.metrics import Metric, Metrics, Timing
from oauthbroker.observability.tracing import is_traced
from oauthbroker.observability.transcript_scrubber import Scrubber
from oauthbroker.records import Grant
from oauthbroker.records.provider_data import visible_to_tools
from oauthbroker.refresh.background import BackgroundRefresh
from oauthbroker.repository.repository import Entry, Repository
from oauthbroker.tokens.grant_uses import Uses
from oauthbroker.tokens.issuance import Issuance, Words, as_issued
from oauthbroker.tokens.issuance_cache import Issuances
from oauthbroker.tokens.token_call import Caller, Calls, TokenCall

_READY = Timing.TOKEN_CALL, ("ready",)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIssuer:
    """Issues the tokens of grants, and notes who got them: in the audit log, the uses, the metrics."""

    calls: Calls
    repository: Repository
    background: BackgroundRefresh
    clock: Clock
    audit: AuditWriter
    metrics: Metrics
    uses: Uses
    scrubber: Scrubber
    issuances: Issuances = field(default_factory=Issuances)

    def issue(
        self,
        caller: Caller,
        call: TokenCall,
        grant: Grant,
        version: Entry | None,
        *,
        degraded: bool,
        is_team: bool = False,
    ) -> Ready:
        """Issue the grant's token. If the caller has asked before, prepare the answer for `reissue`, which gives it as
        long as this is the grant's version. Most callers ask once, and to prepare costs as much as to decide."""
        app, token = call.app, grant.token
        assert token is not None  # noqa: S101  (decide gives Use only for a grant with a token)
        scopes = grant.scopes if app.scope_set.issuperset(grant.scopes) else union_in_app_order(app, grant.scopes)
        ready = Ready(
            access_token=token.access_token,
            token_type=token.token_type,
            expires_at=token.expires_at,
            scopes=scopes,
            degraded=degraded,
            provider_data=visible_to_tools(app, grant),
            is_team=is_team,
        )
        entry = _issued_entry(caller, call, grant, degraded=degraded, is_team=is_team)
        issuance = Issuance(
            app=app,
            subject=call.key.subject,
            accounts=_accounts_of(caller),
            grant=as_issued(app, grant) if app.refresh_ahead_seconds else grant,
            entry=entry,
            write=partial(self.audit.write, entry),
            counted=(Metric.TOKENS_READY, (grant.app,)),
            ready=ready,
        )
        words = call.words
        is_repeated = words is not None and not degraded and caller.issued.asked_before(words)
        is_repeated = is_repeated and not grant.renews_itself  # whose exchange each call may have to begin
        if version is None or words is None or not is_repeated or not self._may_last(version):
            self._hand_out(issuance, self.clock.now())
            return ready
        issuance.grant, issuance.version = as_issued(app, grant), version.without_body()
        issuance.since, issuance.until = token.usable(call.need.enough(token), grant.updated_at)
        issuance.write = self.audit.repeated(entry)
        self._hand_out(issuance, self.clock.now())
        self.issuances.keep_issuance(caller.issued, words, issuance)
        return issuance.fresh()

    def reissue(self, caller: Caller, words: Words | None, *, confirmed: Issuance | None = None) -> Issuance | None:
        """Answer a token call that was answered before, at the cost of one look at the grant's version and one audit
        entry. None if anything may have changed or fails: `OAuthManager` decides then, and reports it.

        Check before that the caller's turn has not ended, and wait for nothing in between. `confirmed`: the issuance
        whose version the store has called the newest one since the call began.
        """
        began = self.clock.monotonic()
        try:
            issuance = caller.issued.get(words) if words is not None else None
            if issuance is None or is_traced() or not issuance.fits(caller.turn, self.calls.apps):
                return None
            now, version = self.clock.now(), issuance.version
            if version is None or not issuance.since <= now < issuance.until:
                caller.issued.pop(words, None)  # type: ignore[arg-type]
                return None
            if issuance is not confirmed and not self.repository.is_newest(version):
                if self.repository.shared is None:
                    caller.issued.pop(words, None)  # type: ignore[arg-type]
                return None
            self._hand_out(issuance, now)
        except Exception:  # noqa: BLE001  (the general way meets it again)
            return None
        if confirmed is None:
            self.note_ready(began)
        return issuance

    async def confirm(self, caller: Caller, words: Words | None, *, turn: Entry | None = None) -> Issuance | None:
        """Ask the store whether the version of the grant, and that of the `turn`, are still the newest ones. Return the
        answer of before for `reissue`; None if there is none, or either has changed. Raises store codes."""
        issuance = caller.issued.get(words) if words is not None else None
        if issuance is None or issuance.version is None or is_traced():
            return None
        asked = (issuance.version,) if turn is None else (issuance.version, turn)
        if not await self.repository.is_newest_everywhere(*asked):
            caller.issued.pop(words, None)  # type: ignore[arg-type]
            return None
        return None if self.repository.degraded else issuance

    def _may_last(self, version: Entry) -> bool:
        """Return whether this may be the newest version. A store that has to be asked says so at the next call."""
        return self.repository.shared is not None or self.repository.is_newest(version)

    def note_ready(self, began: float) -> None:
        self.metrics.note(_READY, self.clock.monotonic() - began)

    def _hand_out(self, issuance: Issuance, now: datetime) -> None:
        """Issue a token. The audit entry comes first: no entry, no token."""
        entry = issuance.entry
        issuance.write(now)
        self.uses.note(entry.grant, entry.agent, entry.tool, now)
        credential = issuance.app.credential
        self.scrubber.remember(issuance.ready.access_token, None if credential is None else credential.parts)
        self.metrics.count(issuance.counted)
        if issuance.app.refresh_ahead_seconds:
            self.background.watch(issuance.app, issuance.grant)


def _accounts_of(caller: Caller) -> Mapping[str, Any]:
    """Return the accounts that the turn lists, as they are now: a runtime may change its list in place."""
    auth = caller.turn.auth
    return deepcopy(auth.accounts) if auth is not None and auth.accounts else {}


def _issued_entry(
    caller: Caller, call: TokenCall, grant: Grant, *, degraded: bool, is_team: bool
) -> TokenIssued | TokenInjected:
    carrier = call.carrier
    injected = None if carrier is None else partial(TokenInjected, method=carrier.method, host=carrier.host)
    kind = TokenIssued if injected is None else partial(injected, team=is_team)
    return kind(
        app=grant.app,
        grant=grant.id,
        agent=caller.turn.agent_name,
        tool=caller.tool,
        degraded=degraded,
        turn=caller.turn_id,
        instance=caller.turn.instance_key,
    )
