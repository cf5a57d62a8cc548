"""The token call over HTTP, with the three results of `ctx.oauth`, and the apps that a caller may ask for."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from oauthbroker.access.turn_token_cache import TurnTokenHolder
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App
from oauthbroker.model.token_request import call_ref
from oauthbroker.model.token_results import Failed, Ready, TokenResult
from oauthbroker.web.api.fields import ref_of
from oauthbroker.web.api.handler_call import AnyCall, ApiCall, JsonReply, encoded, reply
from oauthbroker.web.api.request_models import NoParameters, RejectedToken, TokenRequest

DENIALS = frozenset({Code.APP_FORBIDDEN, Code.SCOPE_NOT_ALLOWED, Code.NOT_ALLOWED})


async def get_token(call: ApiCall[TokenRequest, NoParameters, NoParameters]) -> Response:
    """Answer as before where nothing has changed: the turn was looked at just now, and nothing was waited for since."""
    asked, holder, contexts = call.body, call.token_holder, call.services.contexts
    again = contexts.manager.issuer.reissue(holder, asked.words)
    if again is not None:
        return JsonReply(again.printed_by(printed).encode())
    result = await contexts.of_turn_token(holder).get_access_token(
        ref_of(asked.oauthAppRef),
        asked.scopes,
        asked.minTtlSeconds,
        account=asked.account,
        switch_account=asked.switchAccount,
    )
    return await _answer(call, result)


async def report_rejected(call: ApiCall[RejectedToken, NoParameters, NoParameters]) -> Response:
    asked = call.body
    name = call_ref(ref_of(asked.oauthAppRef), asked.account, call.services.config.bundle.apps)
    result = await call.services.contexts.of_turn_token(call.token_holder).report_rejected(
        name, asked.accessToken, asked.scopes, asked.claims
    )
    return await _answer(call, result)


def printed(ready: Ready) -> str:
    """Return the text of the answer."""
    return encoded(ready.to_json()).decode()


async def _answer(call: AnyCall, result: TokenResult) -> Response:
    """Audit a tool that asked beyond its declaration. A turn that ended during the call is refused as
    it would have been before it."""
    if isinstance(result, Failed) and result.code is Code.TURN_ENDED:
        raise BrokerError(Code.TURN_ENDED)
    if isinstance(result, Failed) and result.code in DENIALS:
        await call.refused(result.code)
    return reply(result.to_json())


async def list_apps(call: AnyCall) -> Response:
    """List all apps; to a turn, those that its token may use, with the scopes it may ask for."""
    apps = call.services.config.bundle.apps
    if not isinstance(call.caller, TurnTokenHolder) or call.caller.declared is None:
        return reply({"apps": [_app(app, app.scopes) for _, app in sorted(apps.items())]})
    declared = {auth.app: auth.scopes for auth in call.caller.declared}
    mine = [_app(app, declared[name]) for name, app in sorted(apps.items()) if name in declared]
    return reply({"apps": mine})


def _app(app: App, allowed: tuple[str, ...] | None) -> dict[str, Any]:
    scopes = app.scopes if allowed is None else [scope for scope in app.scopes if scope in allowed]
    return {
        "name": app.name,
        "title": app.display_name,
        "provider": app.provider,
        "flow": app.flow,
        "subjectMode": app.subject_mode,
        "scopes": list(scopes),
        "environment": list(app.environment),
    }
