"""Say what a person does at a provider, and in which order, before an app with its preset works."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oauthbroker.providers.preset import Preset
from oauthbroker.providers.words import account_host


def steps(preset: Preset, name: str) -> list[str]:
    """Return the steps for an app of this name, numbered."""
    return [f"{number}. {step}" for number, step in enumerate(_steps(preset, name), 1)]


def _steps(preset: Preset, name: str) -> Iterator[str]:
    page = f" It is described at https://{preset.documentation}" if preset.documentation else ""
    place = f": {preset.register_at}" if preset.register_at else ""
    yield f"Register an application (a client) at {preset.title}{place}.{page}"
    if "authorizationCode" in preset.flows:
        yield f"Give it the redirect address <publicBaseUrl>/oauth/callback/{name}. It ends with your app's name."
    if always := _always(preset):
        yield f"Allow it these scopes, which the broker always asks for: {always}"
    if preset.scopeless:
        yield "Choose its permissions there. The broker asks for no scopes, and the app's scopes are []"
    if preset.sample_scopes:
        yield f"Allow it the scopes that your tools need, such as {' '.join(preset.sample_scopes)}"
    for param, it in preset.params.items():
        usual = f"Without it: {it.default}" if it.default else "Under connectParams, if each connection has another one"
        yield f"Write params.{param}: {it.description}. {usual}."
    env = re.sub(r"[^A-Z0-9]", "_", preset.name.upper())
    secret = (
        ""
        if preset.auth_method == "none"
        else f", and its secret: `oauthbroker secrets set {preset.name} client_secret`"
    )
    yield f"Keep its id in the environment as {env}_CLIENT_ID{secret}"
    if "authorizationCode" in preset.flows:
        login = f"oauthbroker login {preset.name}"
        yield f"For yourself alone: {login} prints another redirect address, and keeps id and secret"
    if preset.api_hosts:
        filled = preset.usual_values()
        hosts = [
            re.sub(r"\{(\w+)\}", lambda found: filled.get(found[1], found[0]), each)
            if isinstance(each, str)
            else account_host(each.model_dump(by_alias=True))
            for each in preset.api_hosts
        ]
        yield f'Tools call the API at {", ".join(hosts)}: oauth.client("OAuthApp/{name}")'
    else:
        yield f"Tools call no API of it. {preset.no_api}"
    if preset.connection_facts.names:
        yield f"Tools get with a token (providerData): {', '.join(preset.connection_facts.names)}"
    for note in preset.notes:
        yield f"Note: {note}"


def _always(preset: Preset) -> str:
    """Return the scopes of every app, or those of each mode where modes differ."""
    said = {mode: " ".join(sorted(it.always_scopes)) for mode, it in preset.variants().items()}
    if preset.modes is None or len({*said.values()}) == 1:
        return next(iter(said.values()))
    return "; ".join(f"{scopes} ({preset.modes.option}: {mode})" for mode, scopes in said.items() if scopes)
