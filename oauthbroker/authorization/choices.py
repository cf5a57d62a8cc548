"""Let the user choose between several elements of a provider's list, such as two sites of one account."""

from __future__ import annotations

import asyncio

from oauthbroker.audit import ElementChosen
from oauthbroker.authorization.finish import Finish
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import to_its_end
from oauthbroker.records import AuthSession
from oauthbroker.records.provider_data import with_choice
from oauthbroker.repository.repository import Conflict


@dataclass(frozen=True, slots=True)
class Choices:
    """Writes choices into grants, and lets their events leave."""

    finish: Finish

    async def choose(self, session: AuthSession, number: int) -> None:
        """Keep the chosen one of the candidates that this session's page shows. The first choice counts: a later one
        changes nothing, nor does one for a grant that another consent has replaced. Raises `requestInvalid` for a
        number without a candidate."""
        async with self.finish.repository.pair(session.key):
            await to_its_end(asyncio.ensure_future(self._choose(session, number)))
        self.finish.outbox.notify()

    async def _choose(self, session: AuthSession, number: int) -> None:
        """Choose under the pair's lease. The other sessions end first: should the broker stop in between, their agents
        are told of the choice that is left, and none waits for ever."""
        finish = self.finish
        versioned = await finish.repository.grant(session.key)
        grant = versioned.record if versioned is not None else None
        if versioned is None or grant is None or grant.auth_session_id != session.id or not grant.needs_choice:
            return
        try:
            chosen = with_choice(grant, number)
        except IndexError:
            raise BrokerError(Code.REQUEST_INVALID, note="choice") from None
        finish.audit.write(ElementChosen(app=grant.app, grant=grant.id, session=session.id), finish.clock.now())
        await finish.waiting.complete_others(chosen, session)
        try:
            await finish.repository.save_grant(chosen, expect=versioned.generation)
        except Conflict:
            raise BrokerError(Code.STORE_LOCKED) from None
