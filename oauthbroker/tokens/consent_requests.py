"""Ask the user for consent: open an auth session and return its link. Line 11 of the table in docs/embedding.md."""

from __future__ import annotations

from collections.abc import Callable

from oauthbroker.authorization.second_grant import asking_both
from oauthbroker.authorization.session_opening import Opening, Wish
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.model.apps import App
from oauthbroker.model.connect_links import connect_link, private_page
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import AuthorizationRequired, Reason, invitation
from oauthbroker.model.turn import checked_target
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.protocol.authorization_urls import AuthorizationUrls
from oauthbroker.records import AuthSession, Grant
from oauthbroker.tokens.decision import step_up
from oauthbroker.tokens.token_call import Caller, TokenCall


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentRequests:
    """Opens the auth sessions of token calls."""

    opening: Opening
    authorization_urls: AuthorizationUrls
    metrics: Metrics
    settings: Settings

    async def ask(
        self,
        caller: Caller,
        call: TokenCall,
        grant: Grant | None,
        reason: Reason,
        is_needed: Callable[[Grant | None], bool],
    ) -> AuthorizationRequired | None:
        """Open an auth session and return its link. None to decide again: a grant arrived meanwhile with which it is
        not needed, or the app's MCP server has moved."""
        app = call.app
        params = app.params if call.key.account or _is_kept(call, grant) else {}
        target = checked_target(caller.turn.resume_target)
        scopes = step_up(app, call.asked, grant, reason)
        wish = Wish(
            key=call.key,
            scopes=scopes,
            resume=target,
            reason=reason,
            switch_account=call.switch_account,
            claims=call.claims,
            params=params,
        )
        session = await self.opening.open_session(app, wish, is_needed)
        if session is None or session.config_digest != app.config_digest:
            return None
        self.metrics.add(Metric.AUTHORIZATIONS_REQUIRED, app.name)
        locale, apart = caller.turn.locale or self.settings.locale, caller.private_links
        declined = [] if grant is None else [scope for scope in scopes if scope in grant.declined]
        is_key = app.credential is not None
        name = app.display_name
        message = invitation(reason, name, session.account, locale, declined, apart=apart, is_key=is_key)
        link = private_page(self.settings.public_base_url) if apart else await self._link(app, session)
        prompt = session.device.prompt if session.device is not None and not apart else None
        return AuthorizationRequired(
            auth_session_id=session.id,
            authorization_url=link,
            expires_at=session.expires_at,
            message=message,
            reason=reason,
            device_code=prompt,
        )

    async def _link(self, app: App, session: AuthSession) -> str:
        """Return the link of the connect page, which is safe in a chat, or the provider's own if the app says
        `direct`."""
        if session.link == "direct" and session.attempt.cookie is None:
            asking = asking_both(app, session)
            return (await self.authorization_urls.lasting(asking, session.attempt, session.scopes)).reveal()
        return connect_link(self.settings.public_base_url, session.ticket)


def _is_kept(call: TokenCall, grant: Grant | None) -> bool:
    """Tell whether the grant's connection is the one to ask for again."""
    return grant is not None and not grant.revoked and not call.switch_account
