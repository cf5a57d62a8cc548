"""The team's credential, which an app may let a user without one of their own use."""

from __future__ import annotations

from oauthbroker.core.clock import Clock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.secret import Secret
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.static_credential import FLOW as STATIC_FLOW
from oauthbroker.model.static_credential import TOKEN_TYPE
from oauthbroker.records import Grant, Token
from oauthbroker.repository.repository import Repository
from oauthbroker.tokens.team_values import TeamValues
from oauthbroker.tokens.token_call import Caller, TokenCall


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamCredentials:
    """Finds the team's credential of a call: in the configuration, else in the store."""

    repository: Repository
    values: TeamValues
    clock: Clock

    def key(self, caller: Caller, call: TokenCall) -> GrantKey | None:
        """Return the key of the team's credential, if the app lets a user without one use that."""
        credential, auth = call.app.credential, caller.turn.auth
        team = auth.subjects.get("global") if auth is not None else None
        if credential is None or not credential.team_fallback or team is None or team == call.key.subject:
            return None
        return GrantKey(call.app.name, team, call.key.account)

    async def grant(self, caller: Caller, call: TokenCall) -> Grant | None:
        """Return the team's credential, if the call may use it."""
        values = await self.values.of(call.app, call.rejected)
        if values is not None:
            return self._configured(call, values)
        key = self.key(caller, call)
        versioned = await self.repository.grant(key) if key is not None else None
        return versioned.record if versioned is not None else None

    def _configured(self, call: TokenCall, values: Secret) -> Grant:
        """Return the team's credential that the configuration holds, in the form of a grant. No store has it."""
        now, app = self.clock.now(), call.app
        return Grant(
            app=app.name,
            provider=app.provider,
            subject=call.key.subject,
            account=call.key.account,
            flow=STATIC_FLOW,
            scopes=(),
            token=Token(access_token=values, token_type=TOKEN_TYPE),
            created_at=now,
            updated_at=now,
            registration=app.registration,
        )
