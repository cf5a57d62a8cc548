"""Values from the environment and the sealed store: read once, missing ones are problems with a place."""

from __future__ import annotations

import copy
import os
import pickle
from typing import Any

import pytest

from oauthbroker.apps import Bundle
from oauthbroker.config import ConfigRefused, load, resolve
from oauthbroker.secret import Secret
from tests.unit.config.bundles import (
    APP,
    BROKER,
    CANARY,
    CONNECTOR,
    GLOBAL,
    edited,
    everything_said,
    loaded_with_values,
    write,
)

LOCAL_DEV = edited(
    BROKER, ("https://broker.example", "http://127.0.0.1:8420"), ("  listen:", "  allowPlainSecrets: dev\n  listen:")
)
PLAIN = edited(APP, ("{valueFrom: {env: ACME_SECRET}}", f"{{value: {CANARY}}}"))
NEVER_SET: dict[tuple[str, str], Secret] = {}


def refused_values(path: Any, env: dict[str, str], secrets: dict[tuple[str, str], Secret]) -> ConfigRefused:
    loaded = load(path)
    with pytest.raises(ConfigRefused) as caught:
        resolve(loaded, env, secrets)
    return caught.value


def test_loading_names_what_it_needs_and_asks_for_none_of_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    folder = write(tmp_path / "b", app=APP, shared=GLOBAL, connector=CONNECTOR)
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", None)
        loaded = load(folder)
    assert {"ACME_SECRET", "CHAT_TOKEN"} == loaded.env_names
    assert {("slack", "client_secret")} == loaded.secret_keys


@pytest.mark.case("96")
def test_values_arrive_as_secrets(tmp_path: Any):
    _, bundle = loaded_with_values(write(tmp_path / "b", app=APP, shared=GLOBAL, connector=CONNECTOR))
    assert "an-id" == bundle.apps["acme"].client.client_id
    assert Secret("from-the-environment") == bundle.apps["acme"].client.client_secret
    assert Secret("from-the-store") == bundle.apps["shared"].client.client_secret
    assert Secret("from-the-environment") == bundle.connectors["chat"].static_token


@pytest.mark.case("96")
def test_everything_missing_is_told_at_once_with_its_place(tmp_path: Any):
    folder = write(tmp_path / "b", app=APP, shared=GLOBAL, connector=CONNECTOR)
    error = refused_values(folder, {}, NEVER_SET)
    assert [
        f"{folder}/app.yaml:10:19 spec.client.clientSecret: environment ACME_SECRET is not set, set it where the broker starts",
        f"{folder}/connector.yaml:6:23 spec.auth.staticToken: environment CHAT_TOKEN is not set, set it where the broker starts",
        f"{folder}/shared.yaml:10:19 spec.client.clientSecret: Secret/slack client_secret is not in the secret store, run `oauthbroker secrets set slack client_secret`",
    ] == sorted(map(str, error.problems))


@pytest.mark.parametrize(
    "value, what",
    [
        ("", "the value is empty"),
        ("  \n", "the value is empty"),
        (f"{CANARY}\n", "a line break"),
        (f"a\x00{CANARY}", "control character"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(value: str, what: str, tmp_path: Any):
    error = refused_values(write(tmp_path / "b", app=APP), {"ACME_SECRET": value}, NEVER_SET)
    assert what in error.problems[0].what
    assert CANARY not in everything_said(error)


def test_only_a_private_key_may_have_lines(tmp_path: Any):
    signing = edited(
        APP,
        ("    clientSecret:", "    authMethod: private_key_jwt\n    clientSecret:"),
        ("  endpoints:", "  endpoints:\n    issuer: https://acme.example"),
    )
    loaded = load(write(tmp_path / "b", app=signing))
    bundle = resolve(loaded, {"ACME_SECRET": "line\nline\n"}, NEVER_SET)
    assert "private_key_jwt" == bundle.apps["acme"].client.auth_method


@pytest.mark.case("96")
def test_a_variable_that_may_be_the_secret_itself_is_not_quoted(tmp_path: Any):
    text = edited(APP, ("env: ACME_SECRET", f"env: {CANARY}"))
    error = refused_values(write(tmp_path / "b", app=text), {}, NEVER_SET)
    assert "the environment variable is not set" == error.problems[0].what
    assert CANARY not in everything_said(error)


@pytest.mark.case("96")
def test_a_plain_secret_needs_the_loud_switch_and_shows_nowhere(tmp_path: Any):
    loaded = load(write(tmp_path / "b", app=PLAIN, broker=LOCAL_DEV))
    bundle = resolve(loaded, {}, NEVER_SET)
    assert {"allowPlainSecrets"} == bundle.settings.weaken
    secret = bundle.apps["acme"].client.client_secret
    assert secret is not None
    assert CANARY == secret.reveal()
    assert CANARY not in repr(loaded) + repr(bundle) + str(loaded.sources)
    for leak in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            leak(bundle)


def test_a_client_id_may_be_a_bare_word(tmp_path: Any):
    _, bundle = loaded_with_values(write(tmp_path / "b", app=edited(APP, ("{value: an-id}", "bare-id"))))
    assert "bare-id" == bundle.apps["acme"].client.client_id


def test_a_connector_may_ask_an_app_like_a_tool(tmp_path: Any):
    asking = edited(
        CONNECTOR, ("{staticToken: {valueFrom: {env: CHAT_TOKEN}}}", "{oauthAppRef: OAuthApp/acme, scopes: [read]}")
    )
    _, bundle = loaded_with_values(write(tmp_path / "b", app=APP, connector=asking))
    [auth] = bundle.tools["Connector/chat"]
    assert ("acme", ("read",)) == (auth.app, auth.scopes)
    assert (auth, None) == (bundle.connectors["chat"].auth, bundle.connectors["chat"].static_token)


def test_a_connector_without_auth_is_nobody(tmp_path: Any):
    silent = edited(CONNECTOR, ("  auth: {staticToken: {valueFrom: {env: CHAT_TOKEN}}}\n", ""))
    _, bundle = loaded_with_values(write(tmp_path / "b", app=APP, connector=silent))
    assert isinstance(bundle, Bundle)
    assert {} == bundle.connectors
