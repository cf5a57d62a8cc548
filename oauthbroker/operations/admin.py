"""What operators may do: come in, look around, end what has to end. The door for the pages of `/admin`."""

from __future__ import annotations

from dataclasses import dataclass

from oauthbroker.api_keys import ApiKeys
from oauthbroker.audit import AuditWriter, CallRefused, OperatorEntered, PageAction
from oauthbroker.clock import Clock
from oauthbroker.desk.letters import Letters
from oauthbroker.desk.survey import Survey
from oauthbroker.desk.visits import Arrival, Visits
from oauthbroker.errors import BrokerError, Code
from oauthbroker.flows.connect import Connect
from oauthbroker.flows.revoke import Told
from oauthbroker.inventory import Grants
from oauthbroker.records.visit import Visit
from oauthbroker.resume import locator_of

LOOPBACK = "loopback"


@dataclass(frozen=True, slots=True)
class Admin:
    """One per broker. What is done is in the audit log with the visit it was done in."""

    survey: Survey
    letters: Letters
    grants: Grants
    connect: Connect
    visits: Visits
    api_keys: ApiKeys
    clock: Clock
    audit: AuditWriter

    async def enter(self, key: str) -> Arrival:
        """With an API key that has the role `operator`. Raises `unauthenticated`, `notAllowed`."""
        found = await self.api_keys.check(key.strip())
        if "operator" not in found.roles:
            raise BrokerError(Code.NOT_ALLOWED, note="the key is no operator's")
        return await self._entered(await self.visits.enter(found.name, found.id))

    async def enter_from_here(self) -> Arrival:
        """From this machine; the caller has made sure of that, and that the settings allow it."""
        return await self._entered(await self.visits.enter(LOOPBACK, ""))

    def turned_away(self, route: str, code: Code) -> None:
        """Somebody who wanted to come in and may not. Of whom there is nothing that could be trusted."""
        self.audit.write(CallRefused(route, code.value, None, None, None), self.clock.now())

    async def is_welcome(self, visit: Visit) -> bool:
        """Whether the key that a visit began with is still an operator's: a removed key ends it at once."""
        if not visit.key:
            return True
        key = await self.api_keys.shelf.get(visit.key.removeprefix("key-"))
        return key is not None and "operator" in key.roles and key.alive_at(self.clock.now())

    async def _entered(self, arrival: Arrival) -> Arrival:
        self.audit.write(OperatorEntered(arrival.visit.operator, arrival.visit.id), self.clock.now())
        return arrival

    async def revoke(self, visit: Visit, grant_id: str) -> Told | None:
        """Ends a grant, here at once. Raises `grantNotFound`, also for one that has ended."""
        row, _ = await self.survey.grant(grant_id)
        told = await self.grants.revoke(row.app, row.subject)
        self.survey.forget()
        if told is None:
            raise BrokerError(Code.GRANT_NOT_FOUND)
        self._note(visit, row.app, "revoke", grant_id)
        return told

    async def cancel(self, visit: Visit, session_id: str) -> bool:
        """Withdraws a request; no event. False when there is nothing left to withdraw. Raises `requestInvalid`."""
        locator = locator_of(session_id)
        held = await self.survey.repository.session(locator)
        if held is None or not await self.connect.cancel(locator):
            return False
        self._note(visit, held.record.app, "cancel", session_id)
        return True

    async def retry(self, visit: Visit, agent: str, event_id: str) -> bool:
        """A dead letter is tried anew. False when there is none of that id."""
        return await self.letters.retry(agent, event_id, lambda: self._note(visit, "", "retryEvent", event_id))

    async def drop(self, visit: Visit, agent: str, event_id: str) -> bool:
        """A dead letter goes for good. False when there is none of that id."""
        return await self.letters.drop(agent, event_id, lambda: self._note(visit, "", "dropEvent", event_id))

    def _note(self, visit: Visit, app: str, action: str, target: str) -> None:
        self.audit.write(PageAction(app, visit.id, action, target), self.clock.now())
