"""The questions of `oauthbroker login`: what an app needs that no preset knows. Each answer can be an option, too."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import typer

from oauthbroker.cli.output.error_output import ask
from oauthbroker.cli.secrets import MOST_BYTES, decoded
from oauthbroker.core.dataclasses import dataclass, field, replace
from oauthbroker.core.refused import Refused
from oauthbroker.core.secret import Secret
from oauthbroker.core.spelling import nearest
from oauthbroker.model.static_credential import CredentialField
from oauthbroker.personal.app_files import PUBLIC, Answers, host_for, secret_of
from oauthbroker.personal.command_lines import one_account
from oauthbroker.personal.places import Places
from oauthbroker.providers import presets
from oauthbroker.providers.credentials import credential_presets
from oauthbroker.providers.credentials.credential_preset import CredentialPreset
from oauthbroker.providers.preset import Preset

ISSUER: Final = "issuer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the command line says. `secrets` are the lines of stdin, None where nothing is read there. `remote`: no
    browser is at hand, so that the device flow is the better way."""

    client_id: str = ""
    secrets: tuple[str, ...] | None = None
    scopes: tuple[str, ...] | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    device: bool | None = None
    remote: bool = False
    key: bool = False
    port: int = 0

    @property
    def is_for_client(self) -> bool:
        """Return whether it says something that an OAuth client alone has."""
        return bool(self.client_id or self.device is not None or self.scopes is not None)

    @property
    def changes(self) -> bool:
        """Return whether it says anything of an app itself."""
        return bool(self.is_for_client or self.secrets or self.params)


def is_asking() -> bool:
    return sys.stdin.isatty()


def note(text: str) -> None:
    """Print a line for the person, beside the answer on stdout."""
    typer.echo(text, err=True)


def read_secrets() -> tuple[str, ...]:
    """Return the lines of stdin. Raises Refused."""
    return tuple(line.strip() for line in decoded(sys.stdin.buffer.read(MOST_BYTES + 1)).splitlines())


def unknown(provider: str, places: Places) -> Refused:
    """Return the refusal of a word that names no provider, with the nearest one that does."""
    if (said := one_account("login", provider)) and provider.partition("@")[0] in {*presets(), *places.names()}:
        return Refused(said)
    if not provider.strip():
        return Refused("Name a provider, such as github. Presets: oauthbroker providers list")
    meant = nearest(provider, {*presets(), *credential_presets(), *places.names()})
    hint = f"Did you mean {meant}? Run: oauthbroker login {meant}" if meant else "Presets: oauthbroker providers list"
    if "." in provider.partition("/")[0]:
        address = f"The address of an MCP server begins with https://. Run: oauthbroker login https://{provider}"
        hint = f"{hint}. {address}" if meant else address
    return Refused(f"No provider is called {provider}. {hint}")


def new_app(provider: str, given: Given, callback: str) -> Answers:
    """Ask what a new app of a preset needs. Raises Refused."""
    preset, key = presets().get(provider), credential_presets().get(provider)
    if given.key and key is None:
        raise Refused(f"{provider} has no preset for keys. Leave out --key.")
    if key is not None and (preset is None or given.key):
        return Answers(provider=provider, kind="CredentialApp", params=_params(key, given))
    assert preset is not None  # noqa: S101  (it has one of the two)
    note(f"No app is configured for {preset.title} here. These answers make one.")
    is_device = device_wanted(preset, given)
    _say_where(preset, callback, is_device=is_device)
    params = _params(preset, given)
    issuer = params.pop(ISSUER, "") if ISSUER not in preset.params else ""
    client_id, secret, flow = client(preset, given, is_device=is_device)
    scopes = _scopes(preset, given)
    return Answers(
        provider=provider, flow=flow, client_id=client_id, secret=secret, scopes=scopes, params=params, issuer=issuer
    )


def _say_where(preset: Preset, callback: str, *, is_device: bool) -> None:
    """Print where the client is registered, and its callback."""
    if preset.register_at:
        note(f"  Register it there: {preset.register_at}")
    if not is_device:
        note(f"  Its callback is   {callback}")
    for each in preset.notes:
        if any(word in each for word in (("device flow",) if is_device else ("redirect", "localhost"))):
            note(f"  {each}")


def asked_again(resource: Mapping[str, Any], given: Given, callback: str) -> Given:
    """Ask once more for the values of a preset's app that has never been connected. An empty answer keeps a value."""
    spec = resource["spec"]
    provider, client_there = spec.get("provider", ""), spec.get("client", {})
    preset, key = presets().get(provider), credential_presets().get(provider)
    before = {**spec.get("params", {}), ISSUER: spec.get("endpoints", {}).get(ISSUER, "")}
    if resource["kind"] == "CredentialApp":
        return given if key is None else replace(given, params=_params(key, given, before))
    if preset is None or "clientId" not in client_there:
        return given
    note(f"{preset.title} has never been connected with the app that is here. Enter keeps each value.")
    is_device = spec.get("flow") == "deviceCode" if given.device is None else given.device
    _say_where(preset, callback, is_device=is_device)
    params = _params(preset, given, before)
    client_id = given.client_id or ask("  Client ID", client_there["clientId"])
    secrets = given.secrets
    if secrets is None and preset.auth_method != "none":
        typed = ask("  Client secret (empty: the same)", hidden=True)
        secrets = (typed,) if typed else None
    scopes = given.scopes
    if scopes is None and spec.get("scopes"):
        scopes = words(ask("  Scopes", " ".join(spec["scopes"])))
    return replace(given, params=params, client_id=client_id, secrets=secrets, scopes=scopes)


def client(preset: Preset, given: Given, *, is_device: bool) -> tuple[str, Secret | None, str]:
    """Ask for a client. Return its id, its secret if it has one, and the flow that it is for. Raises Refused."""
    without = set(preset.flows if preset.auth_method == "none" else preset.public_flows)
    wanted = "deviceCode" if is_device else "authorizationCode"
    if not is_asking():
        missing = [] if given.client_id else ["--client-id ID"]
        if given.secrets is None and wanted not in without:
            missing.append("the secret on stdin: --stdin" + (", or --device" if "deviceCode" in without else ""))
        if missing:
            raise Refused(f"Nothing can be asked without a terminal. Missing: {', and '.join(missing)}.")
    client_id = given.client_id or (ask("  Client ID") if is_asking() else "")
    if not client_id:
        raise Refused(
            f"The client ID is empty. {preset.title} shows it where the app is registered. Nothing was changed."
        )
    typed = "".join(given.secrets or ())
    if given.secrets is None and is_asking() and preset.auth_method != "none":
        hint = " (empty: the device flow)" if "deviceCode" in without and not is_device else ""
        hint = " (empty if it has none)" if wanted in without else hint
        typed = ask(f"  Client secret{hint}", hidden=True)
    if typed:
        return client_id, Secret(typed), wanted
    if wanted in without:
        return client_id, None, wanted
    if "deviceCode" in without:
        return client_id, None, "deviceCode"
    raise Refused(f"The client secret is empty, and {preset.title} takes no client without one. Nothing was changed.")


def callback_of(name: str, provider: str, port: int) -> str:
    return f"http://{host_for(provider)}:{port}/oauth/callback/{name}"


def key_values(fields: tuple[CredentialField, ...], given: Given) -> dict[str, str]:
    """Ask for the fields of a key, without echo, or take the lines of stdin in their order. Raises Refused."""
    if given.secrets is not None:
        lines = [line for line in given.secrets if line]
        if len(lines) != len(fields):
            names = ", ".join(each.title for each in fields)
            raise Refused(f"stdin has {len(lines)} lines. Send {len(fields)}, one for each of: {names}.")
        return {each.name: line for each, line in zip(fields, lines, strict=True)}
    if not is_asking():
        names = ", ".join(each.title for each in fields)
        raise Refused(f"Nothing can be asked without a terminal. Send to stdin with --stdin, a line each: {names}.")
    for page in dict.fromkeys(each.obtain for each in fields if each.obtain):
        note(f"  Made at {page}")
    return {each.name: ask(f"  {_titled(each)}", hidden=True) for each in fields}


def _titled(each: CredentialField) -> str:
    return f"{each.title} ({each.example})" if each.example else each.title


def device_wanted(preset: Preset, given: Given) -> bool:
    """Return whether the device flow is wanted. Raises Refused where the provider has none."""
    has = "deviceCode" in preset.flows
    if given.device and not has and not _needs_issuer(preset):  # an issuer's metadata says whether it has one
        raise Refused(
            f"{preset.title} has no device flow. Leave out --device: the link can be opened on another machine."
        )
    return bool(given.device) or (given.device is None and given.remote and has)


def _needs_issuer(preset: Preset) -> bool:
    return not preset.endpoints.issuer and not preset.endpoints.token_url


def _params(
    preset: Preset | CredentialPreset, given: Given, before: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the parameters of a preset: those that were given, and the answers for those without a usual value.
    `before` are earlier answers."""
    check_params(preset.title, preset, given)
    known = dict(_known(preset))
    found = dict(given.params)
    for name, (words, usual) in known.items():
        if name in found:
            continue
        if usual:
            note(f"  {name} is {usual} (another one: --param {name}=...)")
        elif is_asking():
            found[name] = ask(f"  {name}: {words}", before.get(name, ""))
        else:
            raise Refused(f"Nothing can be asked without a terminal. Missing: --param {name}=... ({words}).")
    return found


def check_params(title: str, preset: Preset | CredentialPreset | None, given: Given) -> None:
    """Refuse a parameter that the preset does not have; an app without a preset has none."""
    known = dict(_known(preset)) if preset is not None else {}
    for name in given.params.keys() - known.keys():
        meant = nearest(name, known)
        hint = f"The nearest is {meant}." if meant else f"It has {', '.join(known) or 'none'}."
        raise Refused(f"{title} has no parameter {name}. {hint}")


def _known(preset: Preset | CredentialPreset) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each parameter with its meaning and its usual value. A preset without addresses needs an issuer."""
    for name, param in preset.params.items():
        yield name, (param.description, param.default)
    if isinstance(preset, Preset) and _needs_issuer(preset):
        yield ISSUER, ("the address of the provider, such as https://login.example.com", "")


def _scopes(preset: Preset, given: Given) -> tuple[str, ...]:
    if given.scopes is not None or preset.scopeless:
        return given.scopes or ()
    usual = " ".join(preset.sample_scopes)
    return words(ask("  Scopes", usual) if is_asking() else usual)


def words(text: str) -> tuple[str, ...]:
    """Return the words of a list that a person typed, with blanks or commas between them."""
    return tuple(dict.fromkeys(text.replace(",", " ").split()))


def changed(resource: Mapping[str, Any], given: Given, *, has_secret: bool) -> dict[str, Any]:
    """Return the resource of an app with what the command line says anew. `has_secret`: a new one of its client."""
    spec = dict(resource["spec"])
    if given.client_id:
        spec["client"] = {**spec.get("client", {}), "clientId": given.client_id}
    if has_secret:
        kept = {name: value for name, value in spec.get("client", {}).items() if (name, value) != PUBLIC}
        spec["client"] = {**kept, "clientSecret": secret_of(resource["metadata"]["name"])}
    if given.scopes is not None:
        spec["scopes"] = list(given.scopes)
    params = dict(given.params)
    preset = presets().get(spec.get("provider", ""))
    if preset is not None and ISSUER in params and ISSUER not in preset.params:
        spec["endpoints"] = {**spec.get("endpoints", {}), ISSUER: params.pop(ISSUER)}  # as `new_app` wrote it
    if params:
        spec["params"] = {**spec.get("params", {}), **params}
    if given.device is not None:
        spec["flow"] = "deviceCode" if given.device else "authorizationCode"
    return {**resource, "spec": spec}
