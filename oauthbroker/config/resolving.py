"""Loaded -> Bundle: the environment and the sealed secrets are read here, once, at start."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from oauthbroker.apps import Bundle, Client, ConnectorAuth, OAuthApp
from oauthbroker.config.loading import AppDraft, Loaded
from oauthbroker.config.problems import Problems
from oauthbroker.config.settings import KEY_FILE_ENV, key_under_store, with_key_file
from oauthbroker.config.values import SecretKey
from oauthbroker.secret import Secret


def resolve(loaded: Loaded, env: Mapping[str, str], secrets: Mapping[SecretKey, Secret]) -> Bundle:
    """The bundle with every value in place. `secrets` are the entries of the store that `loaded.secret_keys` names.

    Raises ConfigRefused: a variable or secret that is not there is a problem like any other, with its place.
    """
    problems = Problems()
    apps = {name: _app(draft, env, secrets, problems) for name, draft in loaded.apps.items()}
    connectors: dict[str, ConnectorAuth] = {}
    for name, draft in loaded.connectors.items():
        token = draft.token.read(env, secrets, problems) if draft.token else None
        connectors[name] = ConnectorAuth(draft.auth, token)
    key_file = with_key_file(loaded.settings, env)
    if key_under_store(key_file, loaded.settings.store_root):
        todo = f"let {KEY_FILE_ENV} or keys.file name a file outside store.root"
        problems.add(loaded.keys_place, "", "the key would lie in the store that it opens", todo)
    problems.raise_if_any()
    return Bundle(dataclasses.replace(loaded.settings, key_file=key_file), apps, loaded.tools, connectors)


def _app(draft: AppDraft, env: Mapping[str, str], secrets: Mapping[SecretKey, Secret], problems: Problems) -> OAuthApp:
    client_id = draft.client_id.read(env, secrets, problems)
    client_secret = draft.client_secret.read(env, secrets, problems) if draft.client_secret else None
    client = Client(client_id.reveal() if client_id else "", client_secret, draft.app.client.auth_method)
    return dataclasses.replace(draft.app, client=client)
