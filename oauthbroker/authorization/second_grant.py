"""The second token of a consent becomes the grant of another app (`alsoGrants`), as of a bot and a user at Slack.

The first grant never depends on it. No two leases are held at once: the second grant is stored, then the first one.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from oauthbroker.authorization.finish import Finish
from oauthbroker.core.dataclasses import dataclass, replace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import ANYONE, App
from oauthbroker.model.identities import is_subject
from oauthbroker.protocol.authorization_request import requested_scopes
from oauthbroker.protocol.consent_answer import consent_response, salvaged_tokens
from oauthbroker.protocol.issued_tokens import IssuedTokens
from oauthbroker.protocol.messages import ProviderResponse
from oauthbroker.protocol.network.crash_guard import crashed
from oauthbroker.records import AuthSession


def second_of(app: App, session: AuthSession) -> tuple[App, AuthSession] | None:
    """Return the other app, and the session as its own would be: of the user of the turn that asked. None where this
    user's consent would be refused, because the first app is a team's that the user may not connect."""
    if (second := app.also) is None:
        return None
    user = session.resume.auth.subjects.get(second.subject_mode, "")
    may_connect = app.subject_mode == "user" or app.owner.authorizers == ANYONE or user in app.owner.authorizers
    if not may_connect or not is_subject(user):
        return None
    own = replace(
        session,
        app=second.name,
        subject_mode=second.subject_mode,
        subject=user,
        scopes=second.scopes,
        account="",
        label="",
    )
    return second, own


def asking_both(app: App, session: AuthSession) -> App:
    """Return the app for the authorization of a session, with the scopes of a second token."""
    asking = session.asking(app)
    if app.also is None or (found := second_of(app, session)) is None:
        return asking
    habits = found[0].habits
    scopes = habits.scope_separator.join(requested_scopes(found[0], found[0].scopes))
    params = {**asking.habits.authorize_params, habits.scope_param: scopes}
    return replace(asking, habits=replace(asking.habits, authorize_params=params))


@dataclass(slots=True, kw_only=True)
class SecondToken:
    """The second token in an answer. It is stored or dropped once."""

    app: App
    session: AuthSession
    answer: ProviderResponse
    issued: IssuedTokens

    @classmethod
    def of(cls, app: App, session: AuthSession, answer: ProviderResponse) -> SecondToken | None:
        """Return the second token in an answer. None if it was not asked for, or its scopes were declined."""
        found = second_of(app, session)
        issued = salvaged_tokens(found[0], answer) if found is not None else IssuedTokens()
        if found is None or not issued:
            return None
        return cls(app=found[0], session=found[1], answer=answer, issued=issued)

    async def keep(self, finish: Finish, sent_at: datetime) -> None:
        """Verify it against its own app and subject, and store its grant; else drop it, and tell it in the log and the
        audit log. Raises nothing."""
        try:
            tokens = consent_response(self.app, self.answer)
            verified = await finish.verify(self.app, self.session, tokens, sent_at)
            await finish.commit_second(self.app, self.session, replace(verified, is_second=True), sent_at)
        except BrokerError as error:
            refused = error.with_traceback(None)
        except Exception as error:  # noqa: BLE001 - the first grant does not depend on it
            refused = crashed(error)
        else:
            self.issued = IssuedTokens()
            return
        finish.log.warning(
            "the second token of a consent is not stored", app=self.app.name, code=refused.code.value, note=refused.note
        )
        await self.drop(finish, refused.code)

    async def drop(self, finish: Finish, code: Code) -> None:
        """Drop it, unless that was done or it is stored."""
        if self.issued:
            with suppress(BrokerError):
                await finish.drop(self.app, self.session, code, self.issued)
        self.issued = IssuedTokens()
