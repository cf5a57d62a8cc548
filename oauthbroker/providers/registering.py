"""Say what a person does at a provider, and in which order, before an app with its preset works."""

from __future__ import annotations

import re
from collections.abc import Iterator

from oauthbroker.providers import Preset
from oauthbroker.providers.words import account_host


def steps(preset: Preset, name: str) -> list[str]:
    """Return the steps for an app of this name, numbered."""
    return [f"{number}. {step}" for number, step in enumerate(_steps(preset, name), 1)]


def _steps(preset: Preset, name: str) -> Iterator[str]:
    page = f" It is described at https://{preset.documentation}" if preset.documentation else ""
    yield f"Register an application (a client) at {preset.title}.{page}"
    if "authorizationCode" in preset.flows:
        yield f"Give it the redirect address <publicBaseUrl>/oauth/callback/{name}. It ends with your app's name."
    always = {scope for variant in preset.variants().values() for scope in variant.always_scopes}
    if always:
        yield f"Allow it these scopes, which the broker always asks for: {' '.join(sorted(always))}"
    if preset.sample_scopes:
        yield f"Allow it the scopes that your tools need, such as {' '.join(preset.sample_scopes)}"
    for param, it in preset.params.items():
        usual = f"Without it: {it.default}" if it.default else "Under connectParams, if each connection has another one"
        yield f"Write params.{param}: {it.description}. {usual}."
    env = re.sub(r"[^A-Z0-9]", "_", preset.name.upper())
    secret = (
        "" if preset.auth_method == "none" else f", and its secret: oauthbroker secrets set {preset.name} client_secret"
    )
    yield f"Keep its id in the environment as {env}_CLIENT_ID{secret}"
    if preset.api_hosts:
        hosts = [
            each if isinstance(each, str) else account_host(each.model_dump(by_alias=True)) for each in preset.api_hosts
        ]
        yield f'Tools call the API at {", ".join(hosts)}: oauth.client("OAuthApp/{name}")'
    else:
        yield f"Tools call no API of it. {preset.no_api}"
    if preset.connection_facts.names:
        yield f"Tools get with a token (providerData): {', '.join(preset.connection_facts.names)}"
    for note in preset.notes:
        yield f"Note: {note}"
