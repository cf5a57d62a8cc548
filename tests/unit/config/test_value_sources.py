"""Values from the environment and the sealed store: read once, missing ones are problems with a place."""

from __future__ import annotations

import copy
import os
import pickle
from typing import Any

import pytest
from joserfc.jwk import ECKey

from oauthbroker.config import ConfigInvalidError, load, resolve
from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import Bundle
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


def refused_values(path: Any, env: dict[str, str], secrets: dict[tuple[str, str], Secret]) -> ConfigInvalidError:
    loaded = load(path)
    with pytest.raises(ConfigInvalidError) as caught:
        resolve(loaded, env, secrets)
    return caught.value


def test_loading_names_the_secrets_and_reads_none(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
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
def test_everything_missing_is_reported_at_once_with_its_place(tmp_path: Any):
    folder = write(tmp_path / "b", app=APP, shared=GLOBAL, connector=CONNECTOR)
    error = refused_values(folder, {}, NEVER_SET)
    assert [
        f"{folder}/app.yaml:10:19 spec.client.clientSecret: Environment ACME_SECRET is not set. Set it where the broker starts.",
        f"{folder}/connector.yaml:6:23 spec.auth.staticToken: Environment CHAT_TOKEN is not set. Set it where the broker starts.",
        f"{folder}/shared.yaml:10:19 spec.client.clientSecret: Secret/slack client_secret is not in the secret store. Run `oauthbroker secrets set slack client_secret`.",
    ] == sorted(map(str, error.problems))


@pytest.mark.parametrize(
    "value, what",
    [
        ("", "the value of environment ACME_SECRET is empty"),
        ("  \n", "the value of environment ACME_SECRET is empty"),
        (f"{CANARY}\n", "the value of environment ACME_SECRET has a line break"),
        (f"a\x00{CANARY}", "control character"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(value: str, what: str, tmp_path: Any):
    error = refused_values(write(tmp_path / "b", app=APP), {"ACME_SECRET": value}, NEVER_SET)
    assert what in error.problems[0].what
    assert CANARY not in everything_said(error)


SIGNING = edited(
    APP,
    ("    clientSecret:", "    authMethod: private_key_jwt\n    clientSecret:"),
    ("  endpoints:", "  endpoints:\n    issuer: https://acme.example"),
)
SEVERAL = (
    "clientSecret: {valueFrom: {env: ACME_SECRET}}",
    "clientSecrets: [{valueFrom: {env: NEW}}, {valueFrom: {secretRef: {ref: Secret/acme, key: old}}}]",
)


def private_key() -> str:
    return ECKey.generate_key("P-256").as_pem(private=True).decode()


class Vault(dict[str, Any]):
    """An `env` of a program's own, whose value may be anything."""

    def get(self, name: str, default: Any = None) -> Any:
        found = super().get(name, default)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.mark.parametrize(
    "value, what",
    [
        (ConnectionError("the text may hold anything"), "environment ACME_SECRET cannot be read: ConnectionError"),
        (None, "environment ACME_SECRET is not set"),
        (b"bytes", "the value of environment ACME_SECRET is no text"),
        (Secret("s"), "the value of environment ACME_SECRET is no text"),
    ],
)
def test_a_variable_that_an_own_environment_cannot_give_is_named(tmp_path: Any, value: object, what: str):
    folder = write(tmp_path / "b", app=APP, shared=GLOBAL)
    refused = refused_values(folder, Vault(ACME_SECRET=value), NEVER_SET)
    assert what in [problem.what for problem in refused.problems]


def test_only_a_private_key_may_have_lines(tmp_path: Any):
    loaded = load(write(tmp_path / "b", app=SIGNING))
    bundle = resolve(loaded, {"ACME_SECRET": private_key()}, NEVER_SET)
    assert ("private_key_jwt", "JWT") == (
        bundle.apps["acme"].client.auth_method, bundle.apps["acme"].client.assertion_type
    )  # fmt: skip


def test_the_kind_of_an_assertion_may_be_the_new_one(tmp_path: Any):
    newer = edited(SIGNING, ("private_key_jwt", "private_key_jwt\n    assertionType: client-authentication+jwt"))
    bundle = resolve(load(write(tmp_path / "b", app=newer)), {"ACME_SECRET": private_key()}, NEVER_SET)
    assert "client-authentication+jwt" == bundle.apps["acme"].client.assertion_type


def test_the_audience_of_an_assertion_may_be_the_token_endpoint_and_then_needs_no_issuer(tmp_path: Any):
    said = "private_key_jwt\n    assertionAudience: tokenEndpoint"
    elsewhere = edited(SIGNING, ("private_key_jwt", said))
    bundle = resolve(load(write(tmp_path / "b", app=elsewhere)), {"ACME_SECRET": private_key()}, NEVER_SET)
    assert "tokenEndpoint" == bundle.apps["acme"].client.assertion_audience
    bare = edited(elsewhere, ("    issuer: https://acme.example\n", ""))
    assert "" == load(write(tmp_path / "c", app=bare)).apps["acme"].app.endpoints.issuer


@pytest.mark.case("95")
@pytest.mark.parametrize(
    "material",
    [
        CANARY,
        f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n",
        ECKey.generate_key("P-256").as_pem(private=False).decode(),
        f'{{"kty": "{CANARY}"}}',
    ],
)
def test_a_key_that_cannot_sign_is_reported_at_start_and_not_quoted(material: str, tmp_path: Any):
    error = refused_values(write(tmp_path / "b", app=SIGNING), {"ACME_SECRET": material}, NEVER_SET)
    [problem] = error.problems
    assert ("spec.client.clientSecret", 11) == (problem.path, problem.line)
    assert "not a private key that a client can sign with" == problem.what
    assert CANARY not in everything_said(error)


def test_several_secrets_are_read_in_their_order(tmp_path: Any):
    loaded = load(write(tmp_path / "b", app=edited(APP, SEVERAL)))
    assert (frozenset({"NEW"}), frozenset({("acme", "old")})) == (loaded.env_names, loaded.secret_keys)
    client = resolve(loaded, {"NEW": "second"}, {("acme", "old"): Secret("first")}).apps["acme"].client
    assert ("second", "first") == tuple(secret.reveal() for secret in client.secrets)
    assert client.client_secret == client.secrets[0]


@pytest.mark.case("95")
def test_each_of_several_secrets_is_needed_and_each_key_has_to_sign(tmp_path: Any):
    missing = refused_values(write(tmp_path / "a", app=edited(APP, SEVERAL)), {}, {})
    assert [f"spec.client.clientSecrets[{index}]" for index in (0, 1)] == [it.path for it in missing.problems]
    folder = write(tmp_path / "b", app=edited(SIGNING, SEVERAL))
    broken = refused_values(folder, {"NEW": private_key()}, {("acme", "old"): Secret(CANARY)})
    assert ["spec.client.clientSecrets[1]"] == [it.path for it in broken.problems]
    assert CANARY not in everything_said(broken)


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


def test_a_connector_without_auth_has_no_identity(tmp_path: Any):
    silent = edited(CONNECTOR, ("  auth: {staticToken: {valueFrom: {env: CHAT_TOKEN}}}\n", ""))
    _, bundle = loaded_with_values(write(tmp_path / "b", app=APP, connector=silent))
    assert isinstance(bundle, Bundle)
    assert {} == bundle.connectors


def test_who_wants_some_apps_only_is_asked_for_their_values_only(tmp_path: Any):
    loaded = load(write(tmp_path / "b", app=APP, shared=GLOBAL, connector=CONNECTOR))
    bundle = resolve(loaded, {"ACME_SECRET": "here"}, NEVER_SET, only={"acme", "gone"})
    assert (["acme"], {}) == (list(bundle.apps), dict(bundle.connectors))
    assert Secret("here") == bundle.apps["acme"].client.client_secret
    with pytest.raises(ConfigInvalidError):
        resolve(loaded, {"ACME_SECRET": "here"}, NEVER_SET, only={"shared"})
