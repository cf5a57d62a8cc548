"""Fields of the Broker resource from OAUTHBROKER_* variables, and from a `.env` beside the bundle."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from oauthbroker.cli import run
from oauthbroker.client import OAuth, Runtime
from oauthbroker.config import ConfigInvalidError, load, load_settings
from oauthbroker.config.bundle.server_environment import load_here, server_environment
from oauthbroker.config.reading.variables import OTHERS, PREFIX, form_of, variables
from oauthbroker.config.reading.writers import open_to_all
from oauthbroker.config.written.broker_spec import BrokerSpec
from oauthbroker.config.written.client_spec import ValueSource
from oauthbroker.config.written.resource_specs import models_in
from oauthbroker.model.settings import Settings
from tests.story.cli.run_kit import UNPRIVILEGED, as_root
from tests.unit.config.bundles import APP, BROKER, bundle

TABLE = {  # variable -> text, setting, value
    "PUBLIC_BASE_URL": ("https://broker.example/oauth", "public_base_url", "https://broker.example/oauth"),
    "LISTEN_HOST": ("0.0.0.0", "listen_host", "0.0.0.0"),
    "LISTEN_PORT": ("9000", "listen_port", 9000),
    "STORE_URL": ("postgresql://db/broker", "store_url_env", "OAUTHBROKER_STORE_URL"),
    "STORE_CONSISTENCY": ("available", "store_consistency", "available"),
    "KEYS_FILE": ("/run/secrets/kek", "key_file", "/run/secrets/kek"),
    "LOCALE": ("ko", "locale", "ko"),
    "EVENTS_EXPIRED": ("true", "expired_events", True),
    "ALLOWED_HOSTS": ("broker.internal:8421, other", "allowed_hosts", ("broker.internal:8421", "other")),
    "TRUSTED_PROXIES": ("10.0.0.0/24", "trusted_proxies", ("10.0.0.0/24",)),
    "API_LISTEN_PORT": ("8500", "api_port", 8500),
    "AUDIT_ON_FAILURE": ("continue", "audit_on_failure", "continue"),
    "LIMITS_TURN_SECONDS": ("60", "limits.turn_seconds", 60),
    "LIMITS_PROVIDER_SECONDS": ("2.5", "limits.provider_seconds", 2.5),
}
REFUSED = {  # variable -> text, the words of the same mistake in YAML
    "LISTEN_PORT": ("web", "spec.listen.port: Not a whole number."),
    "LIMITS_CONNECTIONS": ("0", "spec.limits.connections: Too small. Write at least 1."),
    "EVENTS_EXPIRED": ("yes", "spec.events.expired: Neither true nor false."),
    "LOCALE": ("klingon", "spec.locale: Unknown value."),
    "STORE_CONSISTENCY": ("strickt", "spec.store.consistency: Unknown value."),
    "PUBLIC_BASE_URL": ("ftp://x", "spec.publicBaseUrl:"),
    "TRUSTED_PROXIES": ("10.0.0.1,proxy", "spec.trustedProxies[1]: Not an address or network."),
    "WEAKEN": ("everything", "spec.weaken[0]: Unknown value."),
    "KEYS_ALSO": ("not json", "spec.keys.also: Not JSON."),
    "API_SOCKET_CALLERS": ('[{"uid": "root"}]', "spec.api.socket.callers[0].uid: Not a whole number."),
    "PLUGINS": ("nosuch", "spec.plugins[0]: No plug-in of this name is installed."),
    "KEYS_FILE": (" ", "spec.keys.file: Not a path."),
}


def setting(settings: Settings, path: str) -> object:
    found: object = settings
    for step in path.split("."):
        found = getattr(found, step)
    return found


@pytest.mark.parametrize("name", TABLE)
def test_a_variable_takes_precedence_over_the_file(tmp_path: Path, name: str) -> None:
    text, path, value = TABLE[name]
    config, env = bundle(tmp_path), {PREFIX + name: text}
    assert value == setting(load(config, env).settings, path) == setting(load_settings(config, env), path)
    assert value != setting(load(config).settings, path)


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_value_has_the_message_of_the_file_and_names_the_variable(tmp_path: Path, name: str) -> None:
    text, words = REFUSED[name]
    with pytest.raises(ConfigInvalidError) as refused:
        load(bundle(tmp_path), {PREFIX + name: text})
    assert f"environment {PREFIX}{name} {words}" in str(refused.value)


def test_every_field_of_the_broker_has_one_variable() -> None:
    paths = [each.path for each in variables().values()]
    assert len(paths) == len(set(paths)) == len(variables())
    assert {each[1] for each in paths} == {info.alias or name for name, info in BrokerSpec.model_fields.items()}
    assert not OTHERS & variables().keys()


def fields_below(model: type[BaseModel]) -> Iterator[Any]:
    """Yield the types of the fields that a variable can lead through. A value's source is read as one."""
    for info in model.model_fields.values():
        yield info.annotation
        inner = list(models_in(info.annotation))
        if form_of(info.annotation) == "group" and inner[0] is not ValueSource:
            yield from fields_below(inner[0])


def by_schema(annotation: Any) -> str:
    """Return the form of a field by the JSON Schema of its type."""
    schema = TypeAdapter(annotation).json_schema()
    either = next((it for it in schema.get("anyOf", ()) if it.get("type") != "null"), schema)
    either = schema.get("$defs", {}).get(str(either.get("$ref", "")).rpartition("/")[2], either)
    if either["type"] == "object":
        return "group" if "properties" in either else "JSON"
    if either["type"] == "array":
        return "list" if either["items"].get("type") == "string" else "JSON"
    return {"boolean": "boolean", "integer": "number", "number": "number", "string": "text"}[either["type"]]


def test_a_text_is_read_as_the_schema_of_its_field_says() -> None:
    annotations = list(fields_below(BrokerSpec))
    assert [by_schema(each) for each in annotations] == [form_of(each) for each in annotations]
    assert {"boolean", "number", "list", "JSON", "text", "group"} == {form_of(each) for each in annotations}


def test_a_bundle_without_a_broker_resource_is_set_by_variables_alone(tmp_path: Path) -> None:
    config = bundle(tmp_path, APP.replace("{valueFrom: {env: ACME_SECRET}}", "{valueFrom: {env: ACME}}"))
    settings = load(config, {"OAUTHBROKER_LISTEN_PORT": "9000", "OAUTHBROKER_STORE_ROOT": "../kept"}).settings
    assert (9000, "http://127.0.0.1:9000") == (settings.listen_port, settings.public_base_url)
    assert str(tmp_path / "kept") == settings.store_root


def test_an_empty_variable_is_not_set(tmp_path: Path) -> None:
    assert load(bundle(tmp_path), {"OAUTHBROKER_LISTEN_PORT": ""}).settings.listen_port == 8420


def test_in_a_tools_process_the_locale_is_that_of_the_turn(tmp_path: Path) -> None:
    env = {"OAUTHBROKER_LOCALE": "ko-KR", "OAUTHBROKER_TURN_TOKEN": "x"}
    assert "en" == load(bundle(tmp_path), env).settings.locale


def test_an_unknown_variable_is_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    known = dict.fromkeys(("OAUTHBROKER_URL", "OAUTHBROKER_FLOWS_DATABASE", "OAUTHBROKER_SERVICE_HOST"), "")
    text = BROKER + "  store: {url: {valueFrom: {env: OAUTHBROKER_DATABASE_URL}}}\n"
    env = {
        **known,
        "OAUTHBROKER_DATABASE_URL": "x",
        "OAUTHBROKER_LISTEN_PROT": "1",
        "OAUTHBROKER_s3cret": "",
        "HOME": "",
    }
    found = [str(each) for each in load(bundle(tmp_path, text), env).unknown_variables]
    typo, strange = found
    assert (
        typo == "environment OAUTHBROKER_LISTEN_PROT: No setting of the broker. Did you mean OAUTHBROKER_LISTEN_PORT?"
    )
    assert strange.startswith("environment OAUTHBROKER_?: No setting of the broker.")
    assert "s3cret" not in strange


ENV_FILE = """\
# a comment
export OAUTHBROKER_LISTEN_PORT=9100

OAUTHBROKER_PUBLIC_BASE_URL="https://broker.example/from-env"  # quoted
ACME_SECRET='a # b'
EMPTY=
"""


def test_a_file_of_variables_beside_the_bundle_is_below_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = bundle(tmp_path)
    (tmp_path / ".env").write_text(ENV_FILE, "utf-8")
    (tmp_path / ".env").chmod(0o600)
    (config / ".env").write_text("OAUTHBROKER_LISTEN_PORT=1\n", "utf-8")  # not beside it
    loaded = load_here(config)
    assert (9100, "https://broker.example/from-env") == (loaded.settings.listen_port, loaded.settings.public_base_url)
    assert ("a # b", "") == (loaded.env["ACME_SECRET"], loaded.env["EMPTY"])
    monkeypatch.setenv("OAUTHBROKER_LISTEN_PORT", "9200")
    assert 9200 == load_here(config).settings.listen_port


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("A=1\nnot a line\n", 0o600, ".env:2:1: Not a variable. Write NAME=value on one line."),
        ("A=1\n", 0o666, ".env: Other users can write to this file. Run chmod 600 /"),
    ],
)
def test_a_file_of_variables_that_cannot_be_trusted_is_refused(
    tmp_path: Path, text: str, mode: int, words: str
) -> None:
    (tmp_path / ".env").write_text(text, "utf-8")
    (tmp_path / ".env").chmod(mode)
    with pytest.raises(ConfigInvalidError) as refused:
        server_environment(bundle(tmp_path))
    assert words in str(refused.value)


def foreign_file(file: Path) -> None:
    os.chown(file, UNPRIVILEGED, -1)


def foreign_target(file: Path) -> None:
    there = file.with_name("theirs") / "e"
    there.parent.mkdir()
    file.rename(there)
    foreign_file(there)
    file.symlink_to("theirs/e")


def foreign_link(file: Path) -> None:
    file.rename(file.with_name("ours"))
    file.symlink_to("ours")
    os.chown(file, UNPRIVILEGED, -1, follow_symlinks=False)


def target_in_a_foreign_folder(file: Path) -> None:
    foreign_target(file)
    os.chown(file.with_name("theirs"), UNPRIVILEGED, -1)
    os.chown(file.resolve(), os.geteuid(), -1)


def folder_of_all(file: Path) -> None:
    file.parent.chmod(0o777)


def folder_of_another(file: Path) -> None:
    os.chown(file.parent, UNPRIVILEGED, -1)


@as_root
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (foreign_file, "/.env belongs to another user. Look through it, then make it yours with chown."),
        (foreign_target, "/theirs/e belongs to another user."),
        (foreign_link, "/.env belongs to another user."),
        (target_in_a_foreign_folder, "/theirs belongs to another user."),
        (folder_of_all, "All users may write to /"),
        (folder_of_another, " belongs to another user."),
    ],
)
def test_a_file_of_variables_that_another_user_could_have_written_is_refused(
    tmp_path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    config = bundle(tmp_path)
    (tmp_path / ".env").write_text("A=1\n", "utf-8")
    (tmp_path / ".env").chmod(0o600)
    spoil(tmp_path / ".env")
    with pytest.raises(ConfigInvalidError) as refused:
        server_environment(config)
    assert words in str(refused.value)


def test_a_file_of_variables_of_ours_is_read_by_links_and_in_a_folder_with_the_sticky_bit(tmp_path: Path) -> None:
    config = bundle(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/e").write_text("A=1\n", "utf-8")
    (tmp_path / "data/e").chmod(0o644)
    (tmp_path / ".env").symlink_to("..data/e")  # as Kubernetes mounts a file
    (tmp_path / "..data").symlink_to("data")
    tmp_path.chmod(0o1777)
    assert "1" == server_environment(config)["A"]


def test_a_file_or_folder_of_a_bundle_that_all_users_may_write_to_is_a_warning(tmp_path: Path) -> None:
    config = bundle(tmp_path)
    deep = config / "apps" / "mail"
    deep.mkdir(parents=True)
    (deep / "a.yaml").touch()
    assert [] == list(open_to_all(config))
    for place in (config, deep, deep / "a.yaml"):
        place.chmod(0o777)
    found = [(each.file, each.hint) for each in open_to_all(config)]
    assert [(str(place), f"run chmod o-w {place}") for place in (config, deep, deep / "a.yaml")] == found
    config.chmod(0o1777)
    assert 2 == len(list(open_to_all(config)))


def test_a_file_of_variables_never_leads_a_client_to_another_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle(tmp_path)
    lines = "OAUTHBROKER_URL=https://evil.example\nOAUTHBROKER_TURN_TOKEN=planted\nOAUTHBROKER_API_KEY=planted\n"
    (tmp_path / ".env").write_text(lines, "utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("OAUTHBROKER_URL", "OAUTHBROKER_TURN_TOKEN", "OAUTHBROKER_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for client in (OAuth, Runtime):
        with pytest.raises(ValueError, match="is not set"):
            client.from_env()
    assert 2 == run(["token", "mail"])
