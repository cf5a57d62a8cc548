"""Checks of one app: its provider, client, scopes, redirect and options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from oauthbroker.config.checks.connect import sampled
from oauthbroker.config.checks.pkce import secret_hint
from oauthbroker.config.problems import url_checks
from oauthbroker.config.values.preset_merge import MCP, Merged, provider_options
from oauthbroker.config.written.client_spec import ClientSpec
from oauthbroker.core.header_names import spelled_text
from oauthbroker.core.path_steps import climbs
from oauthbroker.core.shapes import has_shape
from oauthbroker.core.spelling import nearest
from oauthbroker.model.connect_params import params_in
from oauthbroker.model.provider_networks import is_loopback
from oauthbroker.providers import presets
from oauthbroker.providers.quirk_values import SCOPE
from oauthbroker.providers.quirks import Quirks

_PROVIDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PARAMETER = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# Parameters that we set ourselves, or that would send the answer or the proof elsewhere (case 95).
RESERVED_OPTIONS: Final = frozenset(
    {"assertion", "client_assertion", "client_assertion_type", "client_id", "client_secret", "code",
     "code_challenge", "code_challenge_method", "code_verifier", "device_code", "dpop_jkt", "grant_type", "id_token",
     "nonce", "password", "redirect_uri", "refresh_token", "request", "request_uri", "resource", "response_mode",
     "response_type", "scope", "state", "token", "username"}
)  # fmt: skip
_DECIDE_SECRET = ("clientSecrets", "authMethod")
_CALLBACK = re.compile(r"(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+")
_URI_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# First segments of the broker's own paths.
OWN_PATHS: Final = frozenset(
    {"admin", "api", "clients", "connect", "connected", "connections", "declined", "device", "healthz", "livez",
     "login", "metrics", "readyz", "static", "v1"}
)  # fmt: skip


def check_provider(app: Merged) -> None:
    spec, preset = app.spec, app.preset
    if spec.subject_mode is None:
        app.written.missing(("subjectMode",), "write subjectMode: global or subjectMode: user")
    if spec.title is not None and not (has_shape(spec.title) and spec.title.strip() and len(spec.title) <= 100):
        app.written.refuse(("title",), "not a title", "write one line of at most 100 characters")
    if spec.provider is not None and not _PROVIDER.fullmatch(spec.provider):
        app.written.refuse(("provider",), "not a usable name", "use letters, digits, '-', '_' and '.', at most 64")
    if spec.provider is None:
        app.written.missing(("provider",), f"write one of {', '.join(presets())}, or a name of your own and endpoints")
        return
    known, meant = preset.params if preset else {}, set[str]()
    for name, value in (spec.params or {}).items():
        if name not in known:
            close = nearest(name, known)
            meant.add(close)
            hint = f"the nearest known one is {close}" if close else "remove it: this provider's endpoints need no such"
            app.written.refuse(("params", name), "unknown parameter", hint, key=True, astray=not close)
        elif not re.fullmatch(known[name].pattern, value):
            app.written.refuse(("params", name), "not a usable parameter", f"write {known[name].description}")
    given = {*(spec.params or {}), *(spec.connect_params or {}), *meant}
    needed = {name for slot in app.endpoints.__slots__ for name in params_in(getattr(app.endpoints, slot))}
    for name, param in known.items():
        if name in needed - given:
            app.written.missing(
                ("params", name), f"write {param.description}; or connectParams.{name}, if each connection has its own"
            )


def check_client(app: Merged) -> None:
    """Check that a secret is given where one is needed, and only there. Its value is read later, by `value_sources`."""
    client = app.spec.client or ClientSpec.empty()
    if not app.spec.provider and not client.model_fields_set:  # with `mcp` it needs none
        return
    signs = client.client_id is None and client.auth_method == "private_key_jwt"
    learns = app.spec.provider == MCP and (signs or not client.model_fields_set - {"client_id"})
    if client.client_id is None and not learns:
        app.written.missing(("client", "clientId"), "write client: {clientId: ...}")
    secrets = {"clientSecret": client.client_secret, "clientSecrets": client.client_secrets}
    found = [name for name, source in secrets.items() if source is not None]
    if len(found) > 1:
        what = "both clientSecret and clientSecrets"
        app.written.refuse(("client", "clientSecrets"), what, "keep the list, with the first to try first", key=True)
    elif found and app.auth_method == "none":
        what, preset = "a client secret beside authMethod: none", app.preset
        said = f"; with a secret write {secret_hint(preset)}" if preset and preset.pkce_refused_at else ""
        app.written.refuse(("client", found[0]), what, f"remove one of the two{said}", key=True)
    elif found == ["clientSecrets"] and not client.client_secrets:
        app.written.refuse(("client", "clientSecrets"), "an empty list", "write at least one source")
    elif not found and app.auth_method != "none" and all(app.written.whole("client", it) for it in _DECIDE_SECRET):
        app.written.missing(("client", "clientSecret"), "write it, or authMethod: none for a public client")
    _check_assertion(app, client)


def _check_assertion(app: Merged, client: ClientSpec) -> None:
    if app.auth_method == "private_key_jwt":
        if app.assertion_audience == "issuer" and not app.endpoints.issuer and app.spec.provider != MCP:
            hint = (
                "write it: the client's assertion names it as its audience; or client.assertionAudience: tokenEndpoint"
            )
            app.written.missing(("endpoints", "issuer"), hint)
        return
    said = {"assertionType": client.assertion_type, "assertionAudience": client.assertion_audience}
    for name in (name for name, value in said.items() if value):
        what, hint = "no assertion is made with this authMethod", "remove it, or write authMethod: private_key_jwt"
        app.written.refuse(("client", name), what, hint, key=True)


def check_scopes(app: Merged) -> None:
    scopes = app.spec.scopes
    if scopes is None:
        if not app.habits.scopeless:
            app.written.missing(("scopes",), "write the scopes that this app may ever have, [] for none")
        return
    for index, scope in enumerate(scopes):
        if not re.fullmatch(SCOPE, scope) or app.habits.scope_separator in scope:
            app.written.refuse(("scopes", index), "not a scope", "write one scope an item, no spaces, quotes or commas")
        elif scope in scopes[:index]:
            app.written.refuse(("scopes", index), "the same scope twice", "remove one")
    for index, url in enumerate(app.spec.resource or ()):
        problem = url_checks.problem(url)
        if problem:
            app.written.refuse(("resource", index), *problem)


def check_quirks(app: Merged) -> None:
    """Check the quirks against each other. Their shapes were checked before."""
    if (name := app.habits.code_param) in app.facts.callback:
        app.written.refuse(("facts", "callback", name), "it holds the code, which is no fact", "remove it", key=True)
    quirks = app.spec.quirks
    if quirks is None:
        return
    if quirks.scope_param in RESERVED_OPTIONS - {"scope"}:
        app.written.refuse(
            ("quirks", "scopeParam"), "a parameter that is ours to set", "write the name that the provider uses"
        )
    names = [name.lower() for name in (*app.habits.param_names.values(), app.habits.scope_param)]
    if len({*names}) < len(names):
        hint = "write each name once; one of them may be the preset's"
        app.written.refuse(("quirks", "paramNames"), "two parameters of one name", hint, key=True)
    _check_own_headers(app, quirks)
    _check_revocation(app, quirks)
    if quirks.user_info_body and app.habits.user_info_method == "GET":
        app.written.refuse(("quirks", "userInfoBody"), "a body for a GET", "write userInfoMethod: POST", key=True)


def _check_own_headers(app: Merged, quirks: Quirks) -> None:
    """Check that no other header of requests with the token has its name, which would be ignored."""
    token = spelled_text(app.habits.token_header)
    for field, headers in (("apiHeaders", quirks.api_headers), ("userInfoHeaders", quirks.user_info_headers)):
        for name in (name for name in headers if spelled_text(name) == token):
            what = "the header of the token, which the broker itself sets"
            app.written.refuse(("quirks", field, name), what, "remove it", key=True)


def _check_revocation(app: Merged, quirks: Quirks) -> None:
    """Check that a revocation that the app describes can be made."""
    way, endpoints = quirks.revoke, app.endpoints
    if way is None or way.kind == "none" or not app.written.whole("quirks", "revoke"):
        return
    if not (endpoints.revoke_url or endpoints.issuer or app.spec.provider == MCP):
        hint = "write endpoints.revokeUrl, or an issuer whose metadata has it"
        app.written.refuse(("quirks", "revoke"), "no address to send it to", hint, key=True)
    if app.auth_method == "none" and any(
        "{client_secret}" in it for it in (*way.params.values(), *way.headers.values())
    ):
        hint = "remove {client_secret}, or give the client a secret"
        app.written.refuse(("quirks", "revoke"), "a secret that a public client has not", hint, key=True)


def check_redirect(app: Merged, *, public_base_url: str) -> None:
    """Check the redirect. Every app has its own redirect URI (RFC 9700), and none on a path of the broker."""
    path, base = app.redirect.callback_path, app.redirect.base_url
    written_path = app.spec.redirect.callback_path if app.spec.redirect is not None else None
    if not app.written.name and written_path is None:
        pass  # the missing name is told
    elif not _CALLBACK.fullmatch(sampled(app, path)) or len(path) > 256:
        app.written.refuse(
            ("redirect", "callbackPath"), "not a callback path", "write /words/with/slashes: letters, digits, - _ . ~"
        )
    elif path.split("/")[1].lower() in OWN_PATHS:
        app.written.refuse(("redirect", "callbackPath"), "a path of the broker's own", "write /oauth/callback/<name>")
    _check_uri_name(app)
    if app.spec.redirect is None or app.spec.redirect.base_url is None:
        return
    problem = base_url_problem(base)
    comparable = problem is None and not url_checks.problem(public_base_url)
    is_ours = comparable and url_checks.origin_of(base) == url_checks.origin_of(public_base_url)
    if comparable and not is_ours and app.redirect.link == "connect":
        what = "another origin than publicBaseUrl, so the browser's cookie would not come back"
        problem = what, "leave it out, or write link: direct"
    if problem:
        app.written.refuse(("redirect", "baseUrl"), *problem)


def _check_uri_name(app: Merged) -> None:
    """Check the name under which the provider knows the redirect URI: one name stands for one address."""
    name = app.redirect.uri_name
    problem: tuple[str, str] | None = None
    if app.spec.redirect is not None and app.spec.redirect.uri_name is not None and not _URI_NAME.fullmatch(name):
        problem = "not a registered name", "write letters, digits and - _ ., at most 128; for an address leave it out"
    elif name and app.spec.provider == MCP:
        problem = "an MCP server knows no names of addresses", "remove it"
    elif name and params_in(app.redirect.callback_path):
        problem = "one name for several callback paths", "remove it, or the parameter in callbackPath"
    elif name and app.spec.flow != "authorizationCode":
        problem = "a redirect in a flow without one", "remove it, or change the flow"
    if problem is not None:
        app.written.refuse(("redirect", "uriName"), *problem)


def base_url_problem(url: str) -> tuple[str, str] | None:
    """Return (problem, remedy) for an address of ours that browsers could not be sent to safely, else None."""
    problem = url_checks.problem(url, query=False)
    if problem is None and url_checks.is_http(url) and not is_loopback(url_checks.host_of(url)):
        return "http instead of https", "write https://, http is for loopback only"
    path = urlsplit(url).path.rstrip("/") if problem is None else ""
    if climbs(path) or "//" in path:
        return "a path with a step that browsers leave out", "write the path without . and .. and empty steps"
    return problem


def check_options(app: Merged) -> None:
    """Check options. They may add parameters, but never name one that carries a check (case 95)."""
    reserved = RESERVED_OPTIONS | {name.lower() for name in (app.habits.scope_param, *app.habits.param_names.values())}
    known = {"authorize", "token", "refresh"} | (
        {app.spec.provider or ""} if app.preset and app.preset.modes else set()
    )
    for group, values in (app.spec.options or {}).items():
        if group not in known:
            close = nearest(group, known)
            hint = f"the nearest known name is {close}" if close else f"known here: {', '.join(sorted(known))}"
            app.written.refuse(("options", group), "unknown options", hint, key=True, astray=not close)
        elif group in {"authorize", "token", "refresh"}:
            _check_parameters(app, group, values, reserved)
    _check_mode(app, provider_options(app.spec))


def _check_parameters(app: Merged, group: str, values: Mapping[str, str], reserved: frozenset[str]) -> None:
    for name in values:
        if name.lower() in reserved:
            app.written.refuse(("options", group, name), "a parameter that is ours to set", "remove it", key=True)
        elif not _PARAMETER.fullmatch(name):
            hint = "write letters, digits, _ - ."
            app.written.refuse(("options", group, name), "not a parameter name", hint, key=True, astray=True)


def _check_mode(app: Merged, values: Mapping[str, str]) -> None:
    modes = app.preset.modes if app.preset else None
    provider = app.spec.provider or ""
    for name, value in values.items():
        if modes is None or name != modes.option:
            hint = f"known here: {modes.option}" if modes else "remove it"
            app.written.refuse(("options", provider, name), "unknown option", hint, key=True, astray=True)
        elif value not in modes.values:
            hint = f"write {' or '.join(modes.values)}"
            app.written.refuse(("options", provider, name), "unknown value", hint)
