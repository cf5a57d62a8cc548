"""Loaded -> Bundle: the environment and the sealed secrets are read here, once, at start."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from oauthbroker.config.bundle.unresolved_bundle import AppDraft, Loaded, LoginDraft
from oauthbroker.config.checks.broker import key_problems
from oauthbroker.config.key_file import KEY_FILE_ENV, with_keys
from oauthbroker.config.plugins.plugin_resources import PluginDraft
from oauthbroker.config.problems.problems import Problems
from oauthbroker.config.reading.files import configuration_files, environment_file
from oauthbroker.config.values.value_sources import SecretKey, Source
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.broker_login import BrokerLogin
from oauthbroker.model.bundle import Bundle, ConnectorAuth
from oauthbroker.model.client_key import signing_key
from oauthbroker.model.plugin_resources import PluginResource, PluginResources
from oauthbroker.model.settings import Settings
from oauthbroker.model.static_credential import StaticCredential, packed
from oauthbroker.plugins.discovery import declared, secret_places_of


def resolve(
    loaded: Loaded,
    env: Mapping[str, str],
    secrets: Mapping[SecretKey, Secret],
    *,
    only: Collection[str] | None = None,
) -> Bundle:
    """Return the bundle with every value in place. `secrets` are the entries of the store that `loaded.secret_keys`
    names. With `only`, the bundle has the apps and plug-ins of these names, no connector and no forwarder, and no
    other value is asked for.

    Raises ConfigInvalidError: a variable or secret that is not there is a problem like any other, with its place.
    """
    problems = Problems()

    def read(source: Source) -> Secret | None:
        return source.read(env, secrets, problems)

    every = loaded.apps
    if only is not None:
        loaded = _narrowed(loaded, only)
    apps = {name: _app(draft, read, problems, every.get(draft.also)) for name, draft in loaded.apps.items()}
    connectors = {
        name: ConnectorAuth(draft.auth, read(draft.token) if draft.token else None)
        for name, draft in loaded.connectors.items()
    }
    plugins = {
        plugin: PluginResources(tuple(_plugin(draft, read) for draft in drafts), loaded.folder)
        for plugin, drafts in loaded.plugins.items()
    }
    forwarders = tuple(draft.resolved(env, secrets, problems) for draft in loaded.forwarders)
    settings = with_keys(loaded.settings, env)
    if problem := key_problems(settings).get(("keys", "file")):
        problems.add(loaded.keys_place, "", problem[0], f"let {KEY_FILE_ENV} or keys.file name {problem[1]}")
    if loaded.proxy_credentials is not None:
        read(loaded.proxy_credentials)
    login = _login(loaded.login, read, problems) if loaded.login is not None else None
    problems.raise_if_any()
    return Bundle(
        settings,
        apps,
        loaded.tools,
        connectors=connectors,
        login=login,
        plugins=plugins,
        forwarders=forwarders,
        **_places(loaded, settings, plugins) if only is None else {},
    )


def _login(draft: LoginDraft, read: Callable[[Source], Secret | None], problems: Problems) -> BrokerLogin:
    app = _app(draft.draft, read, problems)
    return BrokerLogin(app, draft.prompt, draft.max_age_seconds, operators=draft.operators)


def _narrowed(loaded: Loaded, only: Collection[str]) -> Loaded:
    apps = {name: draft for name, draft in loaded.apps.items() if name in only}
    plugins = {name: drafts for name, drafts in loaded.plugins.items() if name in only}
    return dataclasses.replace(loaded, apps=apps, connectors={}, login=None, plugins=plugins, forwarders=())


def _places(loaded: Loaded, settings: Settings, plugins: Mapping[str, PluginResources]) -> dict[str, Any]:
    """Return the places beside those of the settings that no tool is to read."""
    store, folder, is_folder = Path(settings.store_root), loaded.folder, bool(settings.bundle_root)
    of_plugins = tuple(
        each
        for name in settings.plugins
        for each in secret_places_of(declared(name), store, plugins.get(name, PluginResources()))
    )
    if folder is None:
        return {"plugin_places": of_plugins}
    return {
        "plugin_places": of_plugins,
        "configuration": tuple(sorted(map(str, configuration_files(folder, deep=is_folder)))),
        "environment_file": str(environment_file(folder if is_folder else folder / "file")),
    }


def _plugin(draft: PluginDraft, read: Callable[[Source], Secret | None]) -> PluginResource:
    values = {path: read(source) for path, source in draft.sources.items()}
    secrets = {path: value for path, value in values.items() if value is not None}
    return PluginResource(draft.kind, draft.name, draft.spec, secrets=secrets)


def _app(
    draft: AppDraft, read: Callable[[Source], Secret | None], problems: Problems, also: AppDraft | None = None
) -> App:
    """`also` is the draft of the app of its second token, which has the same client."""
    client_id = read(draft.client_id) if draft.client_id else None
    values = [(source, read(source)) for source in draft.client_secrets]
    if draft.app.client.auth_method == "private_key_jwt":
        _check_keys(values, problems)
    found = [value for _, value in values if value]
    client = dataclasses.replace(
        draft.app.client,
        client_id=client_id.reveal() if client_id else "",
        client_secret=found[0] if found else None,
        later_secrets=tuple(found[1:]),
    )
    second = dataclasses.replace(also.app, client=client) if also is not None else None
    credential = _credential(draft, read, problems)
    return dataclasses.replace(draft.app, client=client, also=second, credential=credential)


def _credential(
    draft: AppDraft, read: Callable[[Source], Secret | None], problems: Problems
) -> StaticCredential | None:
    """Return the app's static credential with the values that the bundle names for it."""
    credential, found = draft.app.credential, dict[str, str]()
    if credential is None or not draft.values:
        return credential
    for each in credential.fields:
        source = draft.values[each.name]
        if source.outside is not None:
            continue
        value = read(source)
        if value is not None and each.problem(value.reveal()):
            what = "the value is none of this field: other characters, too long, or another pattern"
            problems.add(source.place, source.path, what, "correct it where it comes from")
        elif value is not None:
            found[each.name] = value.reveal()
    for name in (name for name, problem in credential.problems(found).items() if problem == "colon"):
        what = "a username of Basic with a colon, which would begin the password"
        problems.add(draft.values[name].place, draft.values[name].path, what, "correct it where it comes from")
    outside = {name: source.outside for name, source in draft.values.items() if source.outside is not None}
    return dataclasses.replace(credential, values=packed(found), outside=outside)


def _check_keys(values: Iterable[tuple[Source, Secret | None]], problems: Problems) -> None:
    """Refuse a key that cannot sign at the start, not at the first person who comes back from the provider."""
    for source, value in values:
        if value is None:
            continue
        try:
            signing_key(value)
        except BrokerError:
            what = "not a private key that a client can sign with"
            hint = "give it a PEM or a JWK: EC with P-256, P-384 or P-521, or RSA with 2048 bits or more"
            problems.add(source.place, source.path, what, hint)
