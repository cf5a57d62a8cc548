"""What may be asked for."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from oauthbroker.access.turns import Guest
from oauthbroker.model.apps import OAuthApp
from oauthbroker.web.api.doors import AnyCall, reply


async def list_apps(call: AnyCall) -> Response:
    """All apps; to a turn, those that its token may use, with the scopes it may ask for."""
    apps = call.services.config.bundle.apps
    if not isinstance(call.caller, Guest) or call.caller.declared is None:
        return reply({"apps": [_app(app, app.scopes) for _, app in sorted(apps.items())]})
    declared = {auth.app: auth.scopes for auth in call.caller.declared}
    mine = [_app(app, declared[name]) for name, app in sorted(apps.items()) if name in declared]
    return reply({"apps": mine})


def _app(app: OAuthApp, allowed: tuple[str, ...] | None) -> dict[str, Any]:
    scopes = app.scopes if allowed is None else [scope for scope in app.scopes if scope in allowed]
    return {
        "name": app.name,
        "title": app.display_name,
        "provider": app.provider,
        "flow": app.flow,
        "subjectMode": app.subject_mode,
        "scopes": list(scopes),
    }
