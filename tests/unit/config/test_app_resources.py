"""Apps that a program writes in Python are those of the YAML, with the same checks and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import pytest

from oauthbroker import AppResource, ConfigInvalidError, credential_app, oauth_app, open_broker
from oauthbroker.config import load
from oauthbroker.config.written import app_resources
from oauthbroker.config.written.credential_app_spec import CredentialAppSpec
from oauthbroker.config.written.resource_specs import OAuthAppSpec
from oauthbroker.testing.stores import open_file_store
from tests.unit.config.bundles import APP, BROKER, HEAD, bundle

CLIENT = {"clientId": {"value": "an-id"}, "clientSecret": {"valueFrom": {"env": "ACME_SECRET"}}}
ACME = oauth_app(
    "acme",
    provider="acme",
    flow="authorizationCode",
    subject_mode="user",
    client=CLIENT,
    endpoints={"authorizationUrl": "https://acme.example/authorize", "tokenUrl": "https://acme.example/token"},
    scopes=("read", "write"),
    redirect={"callbackPath": "/oauth/callback/acme"},
    owner={"identity": {"user": {"from": "tokenResponse", "template": "acme:user:{user.id}"}}},
)
KEY = credential_app("datadog", provider="datadog", subject_mode="user", owner={"binding": "localOperator"})
KEY_YAML = HEAD + (
    "kind: CredentialApp\nmetadata: {name: datadog}\n"
    "spec: {provider: datadog, subjectMode: user, owner: {binding: localOperator}}\n"
)


def test_an_app_in_python_is_the_app_of_the_yaml(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    local = BROKER.replace("https://broker.example", "http://127.0.0.1:8420")
    in_yaml = load(bundle(tmp_path / "one", f"{local}---\n{APP}---\n{KEY_YAML}"))
    in_code = load(bundle(tmp_path / "two", local), {}, [ACME, KEY])
    assert [each.app for each in in_yaml.apps.values()] == [each.app for each in in_code.apps.values()]


@pytest.mark.parametrize(
    ("app", "words"),
    [
        (oauth_app("x", provder="github"), "apps[0] spec.provder: "),  # type: ignore[call-arg]
        (oauth_app("x", provider="github", flow="implicit"), "apps[0] spec.flow: Unknown value."),  # type: ignore[arg-type]
        (oauth_app("x", provider="github", client={"clientSecret": "bare"}), "apps[0] spec.client.clientSecret: "),
        (oauth_app("x", provider="githib"), "apps[0] spec.provider: "),
        (oauth_app("x y", provider="github"), "apps[0] metadata.name: Not a usable name."),
        (oauth_app("x", provider="github", scopes=object()), "apps[0] spec.scopes: Not a list."),  # type: ignore[arg-type]
        (credential_app("x", provider="datadgo"), "apps[0] spec.provider: "),
    ],
    ids=lambda each: each[:40] if isinstance(each, str) else "",
)
def test_a_mistake_has_the_message_of_the_yaml_and_names_the_app(tmp_path: Path, app: AppResource, words: str) -> None:
    with pytest.raises(ConfigInvalidError) as refused:
        load(tmp_path / "none", {}, [app])
    assert any(str(each).startswith(words) for each in refused.value.problems), refused.value
    assert "bare" not in str(refused.value)


def test_two_apps_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalidError, match="is taken: the first one is at apps"):
        load(tmp_path / "none", {}, [ACME, ACME])


@pytest.mark.parametrize(
    ("fields", "spec"),
    [(app_resources.OAuthAppFields, OAuthAppSpec), (app_resources.CredentialAppFields, CredentialAppSpec)],
)
def test_the_arguments_are_the_fields_of_the_yaml(fields: Any, spec: type[Any]) -> None:
    assert set(get_type_hints(fields)) == set(spec.model_fields)


async def test_a_broker_opens_with_apps_and_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"ACME_SECRET": "a-secret", "OAUTHBROKER_LISTEN_PORT": "9000"}
    store = open_file_store(tmp_path)
    async with open_broker(apps=[ACME], env=env, store=store, background=False) as broker:
        assert {"acme"} == set(broker.bundle.apps)
        assert 9000 == broker.bundle.settings.listen_port
        assert frozenset() == await broker.reload()
    assert [] == list(tmp_path.rglob("*.yaml"))
