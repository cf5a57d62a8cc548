"""Checks of one app's flow: what it needs, and what has no meaning in it (12.5.7)."""

from __future__ import annotations

from oauthbroker.config.merge import Merged
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import VOUCHING


def check_flow(app: Merged) -> None:
    """12.5.7: a flow that this app cannot have is refused here, not at the first call."""
    if app.spec.flow is None:
        app.written.missing(("flow",), "write flow: authorizationCode, deviceCode or clientCredentials")
    elif app.spec.flow == "deviceCode":
        _check_device_code(app)
    elif app.spec.flow == "clientCredentials":
        _check_client_credentials(app)


def _check_device_code(app: Merged) -> None:
    """RFC 8628 has no browser to bind a session to, so who agreed is always compared."""
    code = Code.DEVICE_CODE_UNSUPPORTED
    if not _may_have_device_endpoint(app):
        what = f"{code.value}: no device endpoint is known here"
        todo = "write endpoints.deviceAuthorizationUrl, or flow: authorizationCode"
        app.written.refuse(("flow",), what, todo, code)
    todo = "write providerIdentity, or flow: authorizationCode"
    if app.binding in VOUCHING:
        what = f"{code.value}: no browser comes back with a device code, so nobody could vouch for it"
        app.written.refuse(("owner", "binding"), what, todo, code)
    elif app.mode == "user" and app.binding != "providerIdentity":
        what = f"{code.value}: with a device code nothing but the provider's word tells whose account comes back"
        app.written.refuse(("owner", "binding"), what, todo, code)
    if app.redirect.link == "direct":
        what = "a device code has no direct link: whoever opens it would not see what it is for"
        app.written.refuse(("redirect", "link"), what, "remove it, or write link: connect")


def _may_have_device_endpoint(app: Merged) -> bool:
    """Named, or left to an issuer's discovery; a preset that names its endpoints would name this one too."""
    if app.endpoints.device_authorization_url:
        return True
    return bool(app.endpoints.issuer) and not (app.preset is not None and app.preset.endpoints.token_url)


def _check_client_credentials(app: Merged) -> None:
    """RFC 6749 section 4.4: our own client is who gets the token, so nothing about a person or a browser may stand
    here, and a client that everybody can be does not get one."""
    spec = app.spec
    if spec.subject_mode == "user":
        what = "client credentials speak for no person"
        app.written.refuse(("subjectMode",), what, "write subjectMode: global, or another flow")
    if app.auth_method == "none":
        what = "a public client has no credentials"
        app.written.refuse(("client", "authMethod"), what, "write how the client proves itself, or another flow")
    for name, written in (
        ("redirect", spec.redirect),
        ("owner", spec.owner),
        ("pushedAuthorization", spec.pushed_authorization),
        ("options.authorize", (spec.options or {}).get("authorize")),
    ):
        if written is not None:
            what = "nobody is asked, and nobody comes back, with flow: clientCredentials"
            app.written.refuse(tuple(name.split(".")), what, "remove it", key=True)


def check_pushing(app: Merged) -> None:
    """RFC 9126. What is pushed is good for about a minute, so it can only be pushed when the browser is on its way."""
    if app.spec.flow == "deviceCode" and app.spec.pushed_authorization is not None:
        what = "no browser is sent anywhere with flow: deviceCode"
        app.written.refuse(("pushedAuthorization",), what, "remove it", key=True)
    elif app.spec.flow != "clientCredentials" and app.spec.pushed_authorization == "required":
        _check_push_required(app)


def _check_push_required(app: Merged) -> None:
    if app.redirect.link == "direct":
        what = "a direct link lies about for longer than a pushed request lives"
        app.written.refuse(("redirect", "link"), what, "write link: connect, or pushedAuthorization: auto")
    if not app.endpoints.pushed_authorization_url and not app.endpoints.issuer:
        todo = "write it, or an issuer whose discovery names it"
        app.written.missing(("endpoints", "pushedAuthorizationUrl"), todo)
