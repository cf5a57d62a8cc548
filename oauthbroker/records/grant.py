"""OAuthGrantRecord (specification 12.5.4): the tokens of one subject for one app."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, AppKind
from oauthbroker.model.grant_key import GrantKey, grant_id
from oauthbroker.model.static_credential import FLOW as STATIC_FLOW
from oauthbroker.model.turn import ResumeTarget
from oauthbroker.records import codec
from oauthbroker.records.codec import APART, OPTIONAL, named
from oauthbroker.records.event import AgentEvent
from oauthbroker.records.open_facts import OpenFacts
from oauthbroker.records.refresh_end import RefreshEnd
from oauthbroker.records.refresh_state import RefreshState
from oauthbroker.records.retired_tokens import Retired, merged
from oauthbroker.records.token import Token

SPEC = ("provider", "subject", "flow", "scopesGranted", "createdAt", "updatedAt", "revoked", "providerData")
UNLISTED_AFTER = 2  # consents in a row
RevocationState = Literal["none", "pending", "done", "refused", "shared", "untold"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One grant. `account` is the one of its subject that it belongs to, `label` the name that its user gave it,
    `account_name` what people call the provider's account, as its provider tells it: shown and never compared, `params`
    the values of the app's connect parameters. `pinned` is (issuer, account) of the first success; `registration` is
    the client it was made with; `outbox` are events not yet queued; `retired` are earlier tokens still to be revoked at
    the provider, not before `tell_after` if the provider refused; `elsewhere` are those of other registrations, or of
    another account, one set each; `replaced` are earlier tokens that may share this grant at the provider, so that they
    are revoked when it ends; `token_binding` is reserved for sender-constrained tokens (RFC 9449). `imported` is the
    mark of the imported line; an imported grant may have an empty access token until its first refresh. `unverified`:
    its provider has not confirmed the account. `declined` are scopes that were requested and not granted, with the
    number of consents in a row. `chosen` is the label of the element whose facts it has, where a provider listed
    several. `unusual` says of the last answer with tokens, and of userinfo after a consent, what a stricter client
    would have refused it for: its `status`, `mediaType`, `encoding` or `lifetime`. `ends` is when it ends by itself.
    `exchange_due`: its first access token is still to be exchanged for a lasting one. `next_credential` takes the place
    of a static credential as soon as the API refuses that. `rejected`: it was, and no next one is left."""

    app: str = field(metadata=APART)
    provider: str
    subject: str
    flow: str
    scopes: tuple[str, ...] = field(metadata=named("scopesGranted"))
    token: Token | None = field(metadata=APART)
    created_at: datetime
    updated_at: datetime
    revoked: bool = False
    revocation: RevocationState = "none"
    account: str = field(default="", metadata=named("connection") | OPTIONAL)
    label: str = field(default="", metadata=OPTIONAL)
    account_name: str = field(default="", metadata=OPTIONAL)
    params: Mapping[str, str] = field(default_factory=dict, metadata=OPTIONAL)
    pinned: tuple[str, str] | None = field(default=None, metadata=named("account"))
    authorized_by: str | None = None
    auth_session_id: str | None = None
    registration: str = ""
    resume: ResumeTarget | None = None
    outbox: tuple[AgentEvent, ...] = ()
    refresh_state: RefreshState = field(default=RefreshState(), metadata=named("refresh") | OPTIONAL)
    retired: Retired | None = field(default=None, metadata=OPTIONAL)
    elsewhere: tuple[Retired, ...] = field(default=(), metadata=OPTIONAL)
    replaced: tuple[Retired, ...] = field(default=(), metadata=OPTIONAL)
    tell_after: datetime | None = field(default=None, metadata=OPTIONAL)
    token_binding: str = field(default="", metadata=OPTIONAL)
    imported: str = field(default="", metadata=OPTIONAL)
    unverified: bool = field(default=False, metadata=OPTIONAL)
    declined: Mapping[str, int] = field(default_factory=dict, metadata=OPTIONAL)
    open_facts: OpenFacts | None = field(default=None, metadata=OPTIONAL)
    chosen: str = field(default="", metadata=OPTIONAL)
    unusual: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    ends: RefreshEnd | None = field(default=None, metadata=OPTIONAL)
    exchange_due: bool = field(default=False, metadata=OPTIONAL)
    next_credential: Secret | None = field(default=None, metadata=OPTIONAL)
    rejected: bool = field(default=False, metadata=OPTIONAL)
    provider_data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> GrantKey:
        return GrantKey(self.app, self.subject, self.account)

    @property
    def id(self) -> str:
        return grant_id(self.app, self.subject, self.account)

    @property
    def kind(self) -> AppKind:
        return "CredentialApp" if self.flow == STATIC_FLOW else "OAuthApp"

    @property
    def identity(self) -> str | None:
        """Return the provider's name for the user who agreed, as far as it is known."""
        return self.authorized_by or (self.pinned[1] if self.pinned is not None else None)

    @property
    def consent(self) -> tuple[str | None, str]:
        """Return the marks of the consent or imported line that it came from. Refreshes keep them."""
        return self.auth_session_id, self.imported

    @property
    def refresh_tokens(self) -> tuple[Secret, ...]:
        """Return the refresh tokens to try, the newest first. Empty if none is left."""
        if self.token is None or self.revoked or self.refresh_state.ended:
            return ()
        return tuple(filter(None, (self.refresh_state.spare, self.token.refresh_token)))

    @property
    def renews_itself(self) -> bool:
        """Tell whether its access token itself is sent for the next one, in place of a refresh token."""
        return self.token is not None and self.token.refresh_token == self.token.access_token

    @property
    def owes_exchange(self) -> bool:
        """Tell whether the exchange of its first token can still be tried."""
        return self.exchange_due and bool(self.refresh_tokens)

    @property
    def ends_by_itself(self) -> bool:
        """Tell whether it can still be used until its `ends`: refreshed, or with a token that nothing refreshes."""
        is_alone = self.token is not None and self.token.refresh_token is None and not self.revoked
        return bool(self.refresh_tokens) or is_alone

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Return scopes that several consents in a row left out: the provider does not list them in its answers."""
        return tuple(scope for scope, times in self.declined.items() if times >= UNLISTED_AFTER)

    @property
    def unfinished(self) -> bool:
        """Tell whether background work is left: an event to queue, a token to revoke at the provider, an intent to
        settle, a fact to ask for, a first token to exchange."""
        is_open = bool(self.facts_missing) or self.refresh_state.intent is not None
        return bool(self.outbox) or self.revocation_pending or is_open or self.owes_exchange

    @property
    def facts_missing(self) -> tuple[str, ...]:
        """Return the names of the facts that the provider is still to be asked for."""
        return self.open_facts.missing if self.open_facts is not None else ()

    @property
    def needs_choice(self) -> bool:
        """Tell whether the user has to choose between several elements first."""
        return self.open_facts is not None and bool(self.open_facts.candidates)

    @property
    def revocation_pending(self) -> bool:
        """Tell whether a token is still to be revoked at the provider."""
        return self.revocation == "pending" or self.retired is not None or bool(self.elsewhere)

    @property
    def pending_since(self) -> datetime:
        """Return since when a token of its own has been waiting to be revoked at the provider."""
        return self.ended.since if self.ended is not None else self.updated_at

    @property
    def ended(self) -> Retired | None:
        """Return the tokens to revoke at the provider: a tombstone's own, and those retired before."""
        own = self.own_tokens if self.revocation == "pending" else None
        return self.retired if own is None else own.and_also(self.retired)

    @property
    def own_tokens(self) -> Retired | None:
        """Return the tokens that it has now, as they are revoked; None if it has none."""
        if self.token is None:
            return None
        refresh = (self.refresh_state.spare, None if self.renews_itself else self.token.refresh_token)
        return Retired(self.updated_at, tuple(filter(None, refresh)), tuple(filter(None, [self.token.access_token])))

    def __repr__(self) -> str:
        state = "revoked" if self.revoked else "live"
        return f"Grant({self.id[:15]}..., {state}, {len(self.scopes)} scopes, {len(self.outbox)} events to send)"

    def sent(self, event_id: str) -> Grant:
        """Return the grant after that event has reached its queue."""
        return replace(self, outbox=tuple(event for event in self.outbox if event.id != event_id))

    def refreshed(
        self,
        token: Token,
        scopes: tuple[str, ...],
        at: datetime,
        provider_data: Mapping[str, Any] | None = None,
        *,
        verified: bool = False,
        unusual: tuple[str, ...] = (),
    ) -> Grant:
        """Return the grant with a new token and no intent. Members that `provider_data` lacks keep their value.
        `verified`: the provider has named its owner."""
        data = {**self.provider_data, **(provider_data or {})}
        refresh_state = RefreshState(asked=self.refresh_state.asked, forced=self.refresh_state.forced, worked=True)
        declined = {scope: times for scope, times in self.declined.items() if scope not in scopes}
        changed = replace(self, token=token, scopes=scopes, declined=declined, provider_data=data, exchange_due=False)
        unverified = self.unverified and not verified
        return replace(changed, refresh_state=refresh_state, updated_at=at, unverified=unverified, unusual=unusual)

    def refused(self, refresh_state: RefreshState, at: datetime, *, rejected: bool) -> Grant:
        """Return the grant after a refused refresh. A `rejected` access token is dropped once no other can follow.
        `updated_at` never goes back, because it shows that the clock was set back since the token was stored."""
        token = self.token.with_latest_end(at, self.updated_at) if self.token is not None else None
        if rejected and refresh_state.is_over and token is not None:
            token = replace(token, expires_at=at)
        return replace(self, token=token, refresh_state=refresh_state, updated_at=max(self.updated_at, at))

    def with_credential_rejected(self, at: datetime) -> Grant:
        """Return the grant after its provider's API refused its static credential: with the next one, or in need of a
        new one."""
        token, following = self.token, self.next_credential
        if token is None or following is None:
            return replace(self, rejected=True, updated_at=max(self.updated_at, at))
        used = replace(token, access_token=following)
        return replace(self, token=used, next_credential=None, updated_at=max(self.updated_at, at))

    def fits_fields_of(self, app: App) -> bool:
        """Tell whether its static credential, if it is one, has all fields that its app has by now."""
        credential, token = app.credential, self.token
        return credential is None or (token is not None and credential.is_whole(token.access_token))

    def tombstoned(self, at: datetime) -> Grant:
        """Return the revoked grant. Its tokens, and those that it replaced, stay sealed until the provider has revoked
        them; of a static credential no provider is told, and it is dropped at once. The pin ends with it."""
        ended = replace(self, revoked=True, revocation="pending", pinned=None, updated_at=at, replaced=())
        if self.flow == STATIC_FLOW:
            ended = ended.erased(at, "untold")
        ended = replace(ended.without_open_facts(), refresh_state=replace(self.refresh_state, intent=None))
        for each in reversed(self.replaced):
            ended = ended.owing_by_account(replace(each, since=at))
        return ended

    def without_open_facts(self) -> Grant:
        """Return the grant with nothing open. The events that waited for a choice leave in a new order."""
        if self.open_facts is None:
            return self
        held = [replace(event, order=0) for event in self.open_facts.held]
        return replace(self, open_facts=None, outbox=(*self.outbox, *held))

    def owing_by_account(self, ended: Retired) -> Grant:
        """Return the grant with tokens to be revoked. Another account's stay apart: grants may share it."""
        is_ours = ended.registration == self.registration and ended.authorized_by in {None, self.authorized_by}
        return self.owing(ended) if is_ours else replace(self, elsewhere=merged(self.elsewhere, ended))

    def erased(self, at: datetime, known: RevocationState = "done") -> Grant:
        """Return the tombstone without its tokens. `known` is what the provider knows of the end."""
        ended = replace(self, token=None, next_credential=None)
        return replace(ended, refresh_state=RefreshState(), revocation=known, updated_at=at)

    def owing(self, ended: Retired) -> Grant:
        """Return the grant with tokens added to those that are to be revoked. A set that names another registration
        stays apart, because no other client may send it."""
        if ended.registration in {"", self.registration}:
            own = replace(ended, registration="", authorized_by=None, tell_after=None, params={})
            return replace(self, retired=own.and_also(self.retired))
        return replace(self, elsewhere=merged(self.elsewhere, ended))

    def holding(self, earlier: Retired) -> Grant:
        """Return the grant with earlier tokens that are revoked when it ends. They name their registration."""
        return replace(self, replaced=merged(self.replaced, earlier))

    def with_revocation_retry(self, at: datetime, registration: str | None = None) -> Grant:
        """Return the grant with the next revocation by a client postponed: the provider refuses it, and only an
        operator can fix that. `registration` None: its own."""
        registration = self.registration if registration is None else registration
        others = (replace(it, tell_after=at) if it.registration == registration else it for it in self.elsewhere)
        postponed = replace(self, elsewhere=tuple(others))
        return replace(postponed, tell_after=at) if registration == self.registration else postponed

    def with_revocation_outcome(self, ended: Retired | None, at: datetime, outcome: RevocationState = "done") -> Grant:
        """Return the grant after these tokens were revoked at the provider, or given up. A tombstone's tokens are
        erased. Other retired tokens stay."""
        known = () if ended is None else ended.secrets
        left = self.retired.without(known) if self.retired is not None else None
        own, others = replace(self, retired=None).ended, (each.without(known) for each in self.elsewhere)
        over = self.revocation == "pending" and (own is None or own.without(known) is None)
        rest = replace(self, retired=left, elsewhere=tuple(each for each in others if each is not None))
        rest = replace(rest, tell_after=None) if over or left != self.retired else rest
        return rest.erased(at, outcome) if over else rest

    def to_plaintext(self) -> bytes:
        name, ref, status = self.id, {"kind": self.kind, "name": self.app}, codec.members(self)
        spec = dict(zip(SPEC, map(status.pop, SPEC), strict=True)) | {"oauthAppRef": ref}
        spec["token"] = codec.members(self.token) if self.token is not None else {}
        status["lifetimeSeconds"] = self.token.lifetime_seconds if self.token is not None else None
        if self.token is not None and self.token.end_stated:
            status["endStated"] = True
        return codec.encode("OAuthGrantRecord", {"metadata": {"name": name}, "spec": spec, "status": status})

    @classmethod
    def from_plaintext(cls, body: bytes) -> Grant:
        data = codec.decode("OAuthGrantRecord", body)
        spec, status = data["spec"], data["status"]
        token, stated = None, status.get("endStated", False)
        if spec["token"]:
            token = codec.made(Token, spec["token"], lifetime_seconds=status["lifetimeSeconds"], end_stated=stated)
        return codec.made(cls, {**status, **spec}, app=spec["oauthAppRef"]["name"], token=token)
