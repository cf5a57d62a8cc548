"""`kind: Broker`: defaults, paths, and switches that are allowed on one machine only."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import platformdirs
import pytest
from pydantic.alias_generators import to_camel

from oauthbroker.config import ConfigInvalidError, load, load_settings, resolve
from oauthbroker.config.written.broker_spec import AdvancedSpec, LimitsSpec
from oauthbroker.model.settings import Consistency, Limits, Settings
from tests.unit.config.bundles import APP, BROKER, edited, write

HEAD = "apiVersion: agents.example.io/v1alpha1\nkind: Broker\nmetadata: {name: broker}\nspec:\n"


def settings(folder: Path, spec: str, env: dict[str, str] | None = None) -> Settings:
    loaded = load(write(folder, broker=HEAD + spec))
    return resolve(loaded, env or {}, {}).settings


def test_a_bundle_without_a_broker_has_defaults(tmp_path: Any):
    loaded = load(write(tmp_path / "config", app=APP))
    assert Settings(store_root=str(tmp_path / "store")) == loaded.settings


@pytest.mark.case("79")
@pytest.mark.parametrize(
    "spec",
    [
        "  locale: en\n",
        "  listen: {host: 127.0.0.1, port: 8420}\n",
        "  publicBaseUrl: http://localhost:8420\n",
        "  admin: {}\n",
        "  admin: {loopback: false}\n",
        "  api: {socket: {path: api.sock}}\n",
        "  api: {socket: {path: api.sock, mode: '0600', callers: []}}\n",
        "  api: {listen: {port: 8421}, socket: {path: api.sock, mode: '0666'}}\n",
    ],
)
def test_no_user_is_let_in_for_being_on_the_same_machine_unless_the_operator_says_so(tmp_path: Any, spec: str):
    """Tools run there, too."""
    found = settings(tmp_path / "config", spec)
    assert (False, ()) == (found.admin_loopback, found.api_socket.callers if found.api_socket else ())


def test_the_operator_can_let_in_this_machine_and_its_users(tmp_path: Any):
    callers = "[{uid: 1000}, {uid: 0, roles: [operator, runtime]}]"
    spec = f"  admin: {{loopback: true}}\n  api: {{socket: {{path: api.sock, callers: {callers}}}}}\n"
    found = settings(tmp_path / "config", spec)
    assert found.admin_loopback
    assert found.api_socket is not None
    assert [(1000, {"runtime"}), (0, {"operator", "runtime"})] == [
        (each.uid, set(each.roles)) for each in found.api_socket.callers
    ]


def test_the_default_store_lies_beside_the_bundle_however_it_is_named(tmp_path: Any, monkeypatch: pytest.MonkeyPatch):
    write(write(tmp_path / "config") / "apps", app=APP)
    monkeypatch.chdir(tmp_path / "config" / "apps")
    for name in ("..", "../../config", tmp_path / "config"):
        assert str(tmp_path / "store") == load(name).settings.store_root


def test_what_the_broker_says_is_taken(tmp_path: Any):
    found = settings(
        tmp_path / "config",
        "  publicBaseUrl: https://broker.example/oauth/\n"
        "  listen: {host: 0.0.0.0, port: 80}\n"
        "  locale: ko\n"
        "  events: {expired: true}\n"
        "  limits: {sessionsPerApp: 7, providerSeconds: 3, sessionSeconds: 120}\n",
    )
    assert "https://broker.example/oauth" == found.public_base_url
    assert ("0.0.0.0", 80, "ko", True) == (found.listen_host, found.listen_port, found.locale, found.expired_events)
    assert Limits(sessions_per_app=7, provider_seconds=3, session_seconds=120) == found.limits


def test_every_written_limit_is_taken(tmp_path: Any):
    written, expected = "", Limits()
    for part, spec in (("limits", LimitsSpec), ("advanced", AdvancedSpec)):
        values = {name: int(getattr(Limits(), name)) + 1 for name in spec.model_fields}
        expected = replace(expected, **values)
        written += f"  {part}: {{{', '.join(f'{to_camel(name)}: {value}' for name, value in values.items())}}}\n"
    assert expected == settings(tmp_path / "c", written).limits


def test_limits_that_only_code_sets(tmp_path: Any):
    """Tests hurry them; no user has a reason to choose another value."""
    written = {*LimitsSpec.model_fields, *AdvancedSpec.model_fields}
    only_code = {"sessions_per_conversation", "provider_concurrency", "sweep_seconds", "request_seconds"}
    assert only_code == {each.name for each in fields(Limits)} - written


@pytest.mark.parametrize("word", get_args(Consistency))
def test_the_consistency_of_the_store_is_one_word(tmp_path: Any, word: str):
    assert word == settings(tmp_path / "c", f"  store: {{consistency: {word}}}\n").store_consistency


@pytest.mark.parametrize(
    "host, url",
    [("127.0.0.1", "http://127.0.0.1:8420"), ("localhost", "http://localhost:8420"), ("::1", "http://[::1]:8420")],
)
def test_a_loopback_listener_needs_no_public_address(host: str, url: str, tmp_path: Any):
    assert url == settings(tmp_path / "c", f'  listen: {{host: "{host}"}}\n').public_base_url


def test_written_paths_are_relative_to_their_file_and_become_absolute(tmp_path: Any):
    found = settings(tmp_path / "c", "  store: {root: ../data/./store}\n  keys: {file: ../keys/kek}\n")
    assert str(tmp_path / "data" / "store") == found.store_root
    assert str(tmp_path / "keys" / "kek") == found.key_file


def test_an_absolute_path_stays(tmp_path: Any):
    assert "/srv/oauth" == settings(tmp_path / "c", "  store: {root: /srv/oauth}\n").store_root


def test_the_key_file_is_the_written_one_else_the_environments_else_the_users(tmp_path: Any):
    env = {"OAUTHBROKER_KEY_FILE": str(tmp_path / "from-env.kek")}
    written = settings(tmp_path / "a", "  keys: {file: ../mine.kek}\n", env)
    from_env = settings(tmp_path / "b", "  locale: en\n", env)
    default = settings(tmp_path / "c", "  locale: en\n")
    assert str(tmp_path / "mine.kek") == written.key_file
    assert str(tmp_path / "from-env.kek") == from_env.key_file
    assert Path(platformdirs.user_data_dir("oauthbroker"), "keys") == Path(default.key_file).parent


def test_two_stores_have_two_default_keys(tmp_path: Any):
    one = settings(tmp_path / "c", "  store: {root: /srv/one}\n").key_file
    assert one != settings(tmp_path / "c", "  store: {root: /srv/two}\n").key_file
    assert one == settings(tmp_path / "d", "  store: {root: /srv/./one}\n").key_file


INTO = {
    "the store": ("store", "store that it opens"),
    "the bundle": ("c", "bundle, which is copied for every changeset"),
}


@pytest.mark.parametrize("folder, what", INTO.values(), ids=INTO.keys())
def test_the_environment_cannot_put_the_key_into(folder: str, what: str, tmp_path: Any):
    loaded = load(write(tmp_path / "c", broker=HEAD + "  store: {root: ../store}\n"))
    with pytest.raises(ConfigInvalidError) as caught:
        resolve(loaded, {"OAUTHBROKER_KEY_FILE": str(tmp_path / folder / "sub" / "kek")}, {})
    assert f"the key would lie in the {what}" == caught.value.problems[0].what


@pytest.mark.parametrize("folder, what", INTO.values(), ids=INTO.keys())
def test_a_link_does_not_hide_that_the_key_lies_in(folder: str, what: str, tmp_path: Any):
    (tmp_path / folder).mkdir()
    tmp_path.joinpath("elsewhere").symlink_to(folder)
    with pytest.raises(ConfigInvalidError) as caught:
        load(write(tmp_path / "c", broker=HEAD + "  store: {root: ../store}\n  keys: {file: ../elsewhere/kek}\n"))
    assert ("spec.keys.file", f"the key would lie in the {what}") == (
        caught.value.problems[0].path,
        caught.value.problems[0].what,
    )


VAULT = "vault: {{address: 'https://vault.example', key: oauthbroker, tokenFile: {}}}"
PLACES = {
    "spec.keys.vault.tokenFile": VAULT,
    "spec.keys.also[0].file": "file: /elsewhere/kek, also: [{{file: {}}}]",
    "spec.keys.also[1].vault.tokenFile": f"file: /elsewhere/kek, also: [{{{{file: /elsewhere/old}}}}, {{{{{VAULT}}}}}]",
}


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("folder, what", INTO.values(), ids=INTO.keys())
def test_no_further_key_and_no_token_of_a_key_service_lies_in(folder: str, what: str, path: str, tmp_path: Any):
    (tmp_path / folder).mkdir()
    tmp_path.joinpath("elsewhere").symlink_to(folder)
    keys = PLACES[path].format("../elsewhere/secret")
    with pytest.raises(ConfigInvalidError) as caught:
        load(write(tmp_path / "c", broker=HEAD + f"  store: {{root: ../store}}\n  keys: {{{keys}}}\n"))
    assert [(path, f"the key would lie in the {what}")] == [(it.path, it.what) for it in caught.value.problems]


def test_all_that_opens_the_store_is_in_one_list(tmp_path: Any):
    written = "  store: {root: ../store}\n  keys: {vault: {address: 'https://vault.example', key: k, tokenFile: /run/v}, also: [{file: /old.kek}]}\n"
    found = settings(
        tmp_path / "c", written, {"OAUTHBROKER_KEY_FILE": "/env.kek", "CREDENTIALS_DIRECTORY": "/run/cred"}
    )
    assert (str(tmp_path / "store"), "/env.kek", "/run/v", "/old.kek", "/run/cred") == found.secret_places


@pytest.mark.parametrize("root", ["store", ".", "deep/er/store", "../linked/store", "../c", "../linked"])
def test_a_store_inside_the_bundle_is_refused_links_followed(root: str, tmp_path: Any):
    tmp_path.joinpath("linked").symlink_to("c")
    folder = write(tmp_path / "c", broker=HEAD + f"  store: {{root: {root}}}\n", app=APP + "  wrong: 1\n")
    what = "the store would lie in the bundle, which is copied for every changeset"
    with pytest.raises(ConfigInvalidError) as caught:
        load(folder)
    assert ("spec.store.root", what) in [(it.path, it.what) for it in caught.value.problems]
    with pytest.raises(ConfigInvalidError, match=what[1:]):
        load_settings(folder)


def test_a_bundle_that_is_reached_by_a_link_is_the_folder_behind_it(tmp_path: Any):
    write(tmp_path / "c", broker=HEAD + f"  store: {{root: {tmp_path}/c/store}}\n")
    tmp_path.joinpath("linked").symlink_to("c")
    with pytest.raises(ConfigInvalidError, match="The store would lie in the bundle"):
        load(tmp_path / "linked")


def test_a_default_store_that_a_link_puts_into_the_bundle_is_refused_too(tmp_path: Any):
    folder = write(tmp_path / "c", app=APP)
    tmp_path.joinpath("store").symlink_to("c")
    with pytest.raises(ConfigInvalidError, match="The store would lie in the bundle"):
        load(folder)


@pytest.mark.parametrize("root", ["../store", "../c-store", "..", "../outside"])
def test_a_store_beside_the_bundle_is_fine_with_any_links_out_of_it(root: str, tmp_path: Any):
    folder = write(tmp_path / "c", broker=HEAD + f"  store: {{root: {root}}}\n")
    folder.joinpath("link").symlink_to("../outside")
    assert str(folder) == load(folder).settings.bundle_root


def test_a_bundle_of_a_single_file_has_no_folder_of_its_own(tmp_path: Any):
    folder = write(tmp_path / "c", broker=HEAD + "  store: {root: store}\n")
    assert "" == load(folder / "broker.yaml").settings.bundle_root


def test_http_to_a_provider_on_this_machine_needs_the_loud_switch_and_keeps_it(tmp_path: Any):
    weak = edited(
        BROKER,
        ("https://broker.example", "http://127.0.0.1:8420"),
        ("  listen:", "  weaken: [plainHttpProvider]\n  listen:"),
    )
    plain = edited(
        APP,
        ("https://acme.example/token", "http://127.0.0.1:9000/token"),
        ("https://acme.example/authorize", "http://[::1]:9000/authorize"),
    )
    loaded = load(write(tmp_path / "c", broker=weak, app=plain))
    assert {"plainHttpProvider"} == loaded.settings.weaken
    assert "http://127.0.0.1:9000/token" == loaded.apps["acme"].app.endpoints.token_url


def test_a_local_operator_is_one_who_can_only_be_reached_locally(tmp_path: Any):
    local = edited(BROKER, ("https://broker.example", "http://localhost:8420"))
    own = edited(
        APP,
        (
            '  owner:\n    identity:\n      user: {from: tokenResponse, template: "acme:user:{user.id}"}\n',
            "  owner: {binding: localOperator}\n",
        ),
        ("{callbackPath", "{link: direct, callbackPath"),
    )
    app = load(write(tmp_path / "c", broker=local, app=own)).apps["acme"].app
    assert ("localOperator", None, "direct") == (app.owner.binding, app.owner.user_identity, app.redirect.link)
