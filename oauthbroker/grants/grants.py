"""What operators see and do: the grants there are, and the runtime's own sealed secrets. Never a token or a value."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import get_args

from oauthbroker.access.api_keys import ApiKeys
from oauthbroker.access.turns import UnknownApp
from oauthbroker.audit import SecretChanged
from oauthbroker.audit.port import AuditWriter
from oauthbroker.audit.trail import FileTrail
from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import check_argument
from oauthbroker.core.secret import Secret
from oauthbroker.events.dead_letters import DeadLetters
from oauthbroker.grants.grant_pages import GrantFilter, GrantPages
from oauthbroker.grants.import_requests import ImportRequests
from oauthbroker.grants.importing import Importing
from oauthbroker.model.accounts import is_account
from oauthbroker.model.apps import App
from oauthbroker.model.connect_links import locator_of
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.identities import check_subject
from oauthbroker.model.token_request import AppRef, WrongArgument, app_name, call_ref, is_named, split_ref
from oauthbroker.records import AuthSession, Grant, SessionStatus
from oauthbroker.records.grant_head import GrantHead
from oauthbroker.records.grant_summary import GrantSummary
from oauthbroker.records.grant_view import GrantView
from oauthbroker.repository.repository import Repository, Versioned
from oauthbroker.revocation.bulk import BulkRevocation, RevocationFigures
from oauthbroker.revocation.pending_revocations import RevocationOutcome
from oauthbroker.revocation.revoke import Revoke

__all__ = ["GrantList", "GrantSummary", "Grants", "Secrets", "SessionList", "Vault"]


class GrantList:
    """The grants there are, to be read. Needs the store, and no value of the configuration: without `apps`, a grant is
    checked for itself."""

    def __init__(self, repository: Repository, clock: Clock, apps: Mapping[str, App] | None = None) -> None:
        self._repository = repository
        self._clock = clock
        self._apps: Mapping[str, App] = {} if apps is None else apps

    async def list(self, *, app: AppRef | None = None, subject: str | None = None) -> AsyncIterator[GrantSummary]:
        """Yield every readable grant, revoked ones included, in no order. `app` in any form of a reference,
        `mail@work` for one account."""
        app = checked_filter(app, subject)
        async for view in self.views(app, subject):
            yield GrantSummary.of(view)

    async def views(self, app: str | None = None, subject: str | None = None) -> AsyncIterator[GrantView]:
        """Yield the same as views, found by their tags. `app` is `name` or `name@account`."""
        async for versioned in self._found(app, subject):
            grant = versioned.record
            if is_named(app, grant.app, grant.account) and subject in {None, grant.subject}:
                yield self._view(grant)

    async def heads(self, *, app: AppRef | None = None, subject: str | None = None) -> AsyncIterator[GrantHead]:
        """Yield the heads of the same grants, in half of the time."""
        app = checked_filter(app, subject)
        async for head in self._heads(app, subject):
            if is_named(app, head.key.app, head.key.account) and subject in {None, head.key.subject}:
                yield head

    def _heads(self, app: str | None, subject: str | None) -> AsyncIterator[GrantHead]:
        if subject is not None:
            return (GrantHead.of(versioned.record) async for versioned in self._repository.grants_with(subject))
        return self._repository.grant_heads(None if app is None else split_ref(app)[0])

    def _found(self, app: str | None, subject: str | None) -> AsyncIterator[Versioned[Grant]]:
        if subject is not None:
            return self._repository.grants_with(subject)
        return self._repository.grants() if app is None else self._repository.grants_of_app(split_ref(app)[0])

    async def in_order(self, wanted: GrantFilter, limit: int) -> AsyncIterator[tuple[str, GrantView | None]]:
        """Yield at most `limit` grants of the filter's app or subject, each after its place, in the store's order."""
        app = split_ref(wanted.app)[0] if wanted.app else None
        read = self._repository.grants_in_order(app, wanted.subject or None, wanted.after or "", limit)
        async for place, versioned in read:
            yield place, None if versioned is None else self._view(versioned.record)

    def heads_in_order(self, wanted: GrantFilter, limit: int) -> AsyncIterator[tuple[str, Versioned[GrantHead] | None]]:
        """Do the same for heads."""
        app = split_ref(wanted.app)[0] if wanted.app else None
        return self._repository.heads_in_order(app, wanted.subject or None, wanted.after or "", limit)

    def opened(self, head: Versioned[GrantHead]) -> GrantView:
        """Return the grant of a head. Raises `recordCorrupt`."""
        return self._view(self._repository.opened_grant(head))

    async def view(self, key: GrantKey) -> GrantView | None:
        """Return a grant as it is now."""
        versioned = await self._repository.grant(key)
        return None if versioned is None else self._view(versioned.record)

    async def summary(self, key: GrantKey) -> GrantSummary | None:
        """Return the same in the form of lists."""
        view = await self.view(key)
        return None if view is None else GrantSummary.of(view)

    def in_memory(self) -> Iterable[GrantView]:
        """Return the grants that calls have used or read lately, as they were then."""
        return map(self._view, self._repository.cached_grants())

    def _view(self, grant: Grant) -> GrantView:
        return GrantView.of(grant, self._apps.get(grant.app), self._clock.now())

    async def find(self, grant_id: str) -> GrantSummary | None:
        """Find a grant by grantId; a scan."""
        async for head in self.heads():
            if head.id == grant_id:
                return await self.summary(head.key)
        return None

    async def record(self, grant_id: str) -> Grant | None:
        """Return the record itself, revoked or not, for `records.display`; None where no grant has that id."""
        found = await self.find(grant_id)
        return None if found is None else await self.record_of(found.key)

    async def record_of(self, key: GrantKey) -> Grant | None:
        """Return the record of a key."""
        versioned = await self._repository.grant(key)
        return None if versioned is None else versioned.record

    async def has_records_of(self, app: str) -> bool:
        """Return whether a grant or an authorization of an app is stored, also of one that the configuration has no
        more."""
        async for _ in self.heads(app=app):
            return True
        async for versioned in self._repository.sessions():
            if versioned.record.app == app:
                return True
        return False

    async def count(self) -> int:
        """Count the grants, revoked ones and those that cannot be read included."""
        return await self._repository.count_grants()


def checked_filter(app: AppRef | None, subject: str | None) -> str | None:
    """Return what a filter names. Raises `requestInvalid`, also for an account that no app can have: a list without a
    grant, or a revocation of none, would hide the mistake."""
    if subject is not None:
        check_subject(subject)
    ref = None if app is None else call_ref(app)
    if ref and (account := split_ref(ref)[1]) and not is_account(account):
        raise WrongArgument("account", "app")
    return ref


class SessionList:
    """`broker.sessions`: the records of authorizations under way, and of those that ended lately."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    async def list(
        self, *, app: AppRef | None = None, subject: str | None = None, status: str | None = None
    ) -> Sequence[AuthSession]:
        """Return every readable session, the newest first. A pending one may have expired a moment ago."""
        app = checked_filter(app, subject)
        check_argument(status in {None, *get_args(SessionStatus)}, "status", "pending, completed, failed or expired")
        found = [
            it.record
            async for it in self._repository.sessions()
            if is_named(app, it.record.app, it.record.account) and subject in {None, it.record.subject}
            if status in {None, it.record.status}
        ]
        return sorted(found, key=lambda it: (it.created_at, it.id), reverse=True)

    async def find(self, session_id: str) -> AuthSession | None:
        """Find a session by authSessionId. Raises `requestInvalid` for a text that is no id."""
        versioned = await self._repository.session(locator_of(session_id))
        return versioned.record if versioned is not None else None


class Grants(GrantList):
    """`broker.grants`: list, find, revoke; `importing` takes over those of another system."""

    def __init__(
        self,
        *,
        apps: Mapping[str, App],
        repository: Repository,
        clock: Clock,
        revoke: Revoke,
        revocations: BulkRevocation,
        importing: Importing,
    ) -> None:
        super().__init__(repository, clock, apps)
        self._revoke = revoke
        self._revocations = revocations
        self.importing = importing
        self.import_requests = ImportRequests(importing=importing, values=repository.plugin_values)
        self.pages = GrantPages(self, clock)

    async def page(self, wanted: GrantFilter, limit: int) -> tuple[list[GrantSummary], str | None]:
        """Return a page in the store's order, and the place after which the next one begins; None after the last."""
        page, goes_on = await self.pages.page(wanted, limit)
        return [GrantSummary.of(view) for view in page], goes_on

    async def find(self, grant_id: str) -> GrantSummary | None:
        """Find a grant by grantId. One that no page has shown lately is looked for in the whole store."""
        view = await self.pages.find(grant_id)
        return None if view is None else GrantSummary.of(view)

    async def revoke(self, app: AppRef, subject: str, account: str = "") -> RevocationOutcome | None:
        """End a grant here at once and at the provider as soon as it answers; what the provider knows by now.

        None when no grant was alive. Raises `oauthAppNotFound` for an app that is not configured and has no records,
        `requestInvalid` for a text that names no subject, or no account.
        """
        key = GrantKey(app_name(app), subject, account)
        check_subject(subject)
        if account != "" and not is_account(account):
            raise WrongArgument("account", "account")
        outcome = await self._revoke.grant(self._apps.get(key.app), key)
        if outcome is None:
            await self.check_known(key.app)
        return outcome

    async def check_known(self, app: AppRef) -> None:
        """Raise `oauthAppNotFound` for an app that is not configured, and of which nothing is stored."""
        name = split_ref(call_ref(app))[0]
        if name not in self._apps and not await self.has_records_of(name):
            raise UnknownApp(name, self._apps)

    async def revoke_all(
        self, *, app: AppRef | None = None, subject: str | None = None, patience: float = 0
    ) -> RevocationFigures:
        """End every grant of an app, of a subject, or all there are, and go on telling providers of those that
        were ended before. A busy provider is waited for up to `patience` seconds; a running broker does the rest."""
        chosen = [it.key async for it in self.heads(app=app, subject=subject) if it.unended]
        if app is not None and not chosen:
            await self.check_known(app)
        await self._repository.sync("grants")  # those that ended before are left out
        return await self.revoke_each(chosen, patience=patience)

    async def revoke_each(
        self,
        pairs: Iterable[GrantKey],
        figures: RevocationFigures | None = None,
        *,
        patience: float = 0,
        on_change: Callable[[RevocationFigures], None] = lambda _: None,
    ) -> RevocationFigures:
        """Revoke the grants of these keys; `figures` is kept up to date, and `on_change` called, while it
        runs."""
        return await self._revocations.revoke_grants(pairs, figures, patience=patience, on_change=on_change)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vault:
    """What can be seen and done while the configuration's values are not at hand."""

    secrets: Secrets
    grants: GrantList
    sessions: SessionList
    dead_letters: DeadLetters
    api_keys: ApiKeys
    audit: FileTrail


@dataclass(frozen=True, slots=True)
class Secrets:
    """The runtime's own sealed `Secret/<name>` entries. Values go in and never come out here."""

    repository: Repository
    clock: Clock
    audit: AuditWriter

    async def put(self, name: str, key: str, value: Secret) -> None:
        """Set the value of one key. Raises `requestInvalid` for an empty value."""
        for argument, text in (("name", name), ("key", key)):
            check_argument(isinstance(text, str) and text, argument, "a text such as the bundle has in its secretRef")
        check_argument(isinstance(value, Secret) and value.reveal().strip(), "value", "a Secret that is not empty")
        self.audit.write(SecretChanged(name=name, action="set"), self.clock.now())
        await self.repository.secrets.change(name, lambda data: {**data, key: value.reveal()})

    async def remove(self, name: str, key: str | None = None) -> bool:
        """Remove one key, or the whole secret. False if it is missing."""
        if not any(name == there and key in {None, found} for there, found in await self.repository.secrets.all()):
            await self.repository.sync("secrets")
            return False
        self.audit.write(SecretChanged(name=name, action="removed"), self.clock.now())
        await self.repository.secrets.change(
            name, lambda data: {there: value for there, value in data.items() if key not in {None, there}}
        )
        return True

    async def names(self) -> list[tuple[str, str]]:
        """Return (name, key) of all stored secrets, sorted."""
        return sorted(await self.repository.secrets.all())
