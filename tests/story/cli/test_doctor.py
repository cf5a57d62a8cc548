"""`oauthbroker doctor`: faults are named, with what to do, and nothing is changed by looking."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import open_broker
from oauthbroker.config import ConfigInvalidError
from oauthbroker.testing import IdentityProvider
from oauthbroker.testing.provider import FOREVER
from tests.kit.cli import APP, BROKER, CLIENT_ID, SECRET, Desk, serving
from tests.kit.running_broker import tree, turn
from tests.kit.served_api import until

ALICE = "idp:user:U234567"
TENANTS = """
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {{name: other}}
spec:
  provider: other
  flow: authorizationCode
  subjectMode: user
  connectParams: {{site: {param}}}
  client: {{clientId: client-other, clientSecret: {{valueFrom: {{secretRef: {{ref: Secret/mail, key: client_secret}}}}}}}}
  endpoints: {{authorizationUrl: "{at}/authorize", tokenUrl: "{at}/token"}}
  scopes: [read]
  redirect: {{callbackPath: "/oauth/callback/other/{{site}}"}}
  owner: {{identity: {{user: {{from: tokenResponse, template: "other:{{connectParams.site}}:{{user}}"}}}}}}
"""
Reported = dict[str, Any]


@pytest.fixture
def harness(desk: Desk, idp: IdentityProvider) -> Desk:
    """Alice has agreed; no broker runs."""
    desk.ready_to_serve(idp)
    desk.connect("alice", idp)
    return desk


def is_taken(descriptor: int) -> bool:
    """Whether this test holds the lock of the file now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def examined(desk: Desk, *words: str) -> Reported:
    done = desk.type("doctor", "--json", *words)
    reported: Reported = json.loads(done.out)
    assert {"ok": 0, "warning": 0, "failure": 2}[reported["severity"]] == done.code
    assert reported["ok"] is (reported["severity"] != "failure")
    return reported


def findings(reported: Reported, severity: str) -> list[tuple[str, str]]:
    return [
        (it["check"], f"{it['about']}: {it['text']} {it['hint']}")
        for it in reported["checks"]
        if it["severity"] == severity
    ]


def test_a_healthy_broker_has_green_lights_and_is_left_as_it_was(harness: Desk, idp: IdentityProvider):
    before, asked = tree(harness.folder), {name: idp.count(name) for name in ("token", "authorize", "revoke")}
    reported = examined(harness)
    assert [] == findings(reported, "failure")
    off = {"plainHttpProvider", "publicBaseUrl is http"}
    assert ["address"] == [check for check, text in findings(reported, "warning") if not any(it in text for it in off)]
    checks = {it["check"] for it in reported["checks"] if it["severity"] == "ok"}
    assert checks >= {
        "keys",
        "permissions",
        "disk",
        "locks",
        "secrets",
        "audit",
        "apiKeys",
        "work",
        "grants",
        "providers",
        "clock",
    }
    assert before == tree(harness.folder)
    assert asked["token"] + 1 == idp.count("token"), "every address is asked once"
    done = harness.type("doctor")
    assert 0 == done.code
    assert "0 failures." in done.out
    assert all(len(line.split()) > 1 for line in done.out.splitlines() if line.strip())


def test_who_needs_no_key_on_this_machine_is_named(harness: Desk):
    caller = f"{{uid: {os.getuid()}, roles: [runtime, operator]}}"
    listeners = f"  admin: {{loopback: true}}\n  api: {{socket: {{path: ../api.sock, callers: [{caller}]}}}}\n"
    harness.write("broker", BROKER.format(base=harness.base, port=harness.port) + listeners)
    warned = [text for check, text in findings(examined(harness), "warning") if check == "configuration"]
    assert any("Operators on this machine need no key" in text for text in warned)
    (harness.folder / "config/broker.yaml").chmod(0o646)
    warned += [text for _, text in findings(examined(harness), "warning")]
    assert any("broker.yaml: All users of this machine may write to it. Run chmod o-w" in text for text in warned)
    every = f"Every process of uid {os.getuid()} is operator and runtime over the Unix socket, without a key."
    assert any(every in text for text in warned)


def test_warnings_count_where_strict_is_set(harness: Desk):
    assert 0 == harness.type("doctor", "--offline").code
    assert 1 == harness.type("doctor", "--offline", "--strict").code, "a check is off in this configuration"


def test_no_secret_is_sent_and_no_redirect_is_followed(harness: Desk, idp: IdentityProvider):
    idp.script.token.redirect(idp.url("/elsewhere"), times=FOREVER)
    reported = examined(harness)
    assert [] == findings(reported, "failure")
    probes = [noted for noted in idp.requests if noted.method == "GET" and noted.endpoint in {"token", "revoke"}]
    assert {"token", "revoke"} == {noted.endpoint for noted in probes}
    for noted in probes:
        assert not {"authorization", "cookie"} & {name.lower() for name in noted.headers}
        assert CLIENT_ID not in repr(noted)
    assert not [noted for noted in idp.requests if "elsewhere" in noted.path]


@pytest.mark.slow
def test_it_works_beside_a_broker_and_waits_for_no_lock(harness: Desk):
    with serving(harness):
        held: list[int] = []
        try:
            for path in (harness.folder / "store/data/locks").iterdir():
                held.append(os.open(path, os.O_RDWR))
                until(partial(is_taken, held[-1]))  # the broker itself holds one for moments
            reported = examined(harness)
        finally:
            for descriptor in held:
                os.close(descriptor)
    assert [] == findings(reported, "failure")
    assert f"A broker answers at {harness.base}." in [it["text"] for it in reported["checks"]]


def key_of_another_store(desk: Desk) -> None:
    text = desk.key_file.read_text("ascii").strip()
    desk.key_file.write_text(text[:-8] + ("A" * 8 if text[-8:] != "A" * 8 else "B" * 8) + "\n")


def planted_link(desk: Desk) -> None:
    (desk.folder / "store/data/grants/link").symlink_to("/etc/passwd")


def open_record(desk: Desk) -> None:
    next((desk.folder / "store/data/grants").iterdir()).chmod(0o644)


def open_folder(desk: Desk) -> None:
    (desk.folder / "store/data/sessions").chmod(0o755)


def damage(desk: Desk) -> None:
    path = next((desk.folder / "store/data/grants").iterdir())
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def rewrite_log(desk: Desk) -> None:
    path = desk.folder / "store/data/audit.jsonl"
    path.write_text(path.read_text().replace("Connected", "Connectec", 1))


def lock_log(desk: Desk) -> None:
    path = desk.folder / "store/data/audit.jsonl"
    path.rename(path.with_name("there.jsonl"))
    path.symlink_to("there.jsonl")


BROKEN: dict[str, tuple[Callable[[Desk], object], str, str]] = {
    "no key": (lambda desk: desk.key_file.unlink(), "keys", "Put the key file back"),
    "a key that all may read": (lambda desk: desk.key_file.chmod(0o644), "keys", "open to others"),
    "another key": (key_of_another_store, "keys", "keyMismatch"),
    "a planted link": (planted_link, "permissions", "data/grants/link: A link."),
    "a record that others read": (open_record, "permissions", "Open to others."),
    "a folder that others read": (open_folder, "permissions", "data/sessions: Open to others."),
    "no secret": (
        lambda desk: desk.type("secrets", "remove", "mail", "--yes"),
        "secrets",
        "oauthbroker secrets set mail client_secret",
    ),
    "an app that is refused": (
        lambda desk: desk.write("mail", "apiVersion: v1\nkind: OAuthApp\n"), "configuration", "mail.yaml",
    ),
    "a record that is damaged": (damage, "grants", "1 record cannot be read: grants/"),
    "a log that was changed": (rewrite_log, "audit", "oauthbroker audit verify"),
    "a log that is a link": (lock_log, "audit", "ELOOP"),
    "no store": (
        lambda desk: (desk.folder / "store").rename(desk.folder / "gone"),
        "permissions",
        "store: There is no store yet. Run `oauthbroker init`",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("harm", "check", "says"), BROKEN.values(), ids=BROKEN)
def test_a_broken_part_is_named_and_the_other_checks_are_made(
    harness: Desk, harm: Callable[[Desk], object], check: str, says: str
):
    harm(harness)
    reported = examined(harness, "--offline")
    assert any(check == where and says in text for where, text in findings(reported, "failure")), findings(
        reported, "failure"
    )
    assert any(it["severity"] == "ok" for it in reported["checks"])
    plain = harness.type("doctor", "--offline")
    assert (2, True) == (plain.code, "FAILURE" in plain.out)


def no_key_in_it(desk: Desk) -> None:
    desk.key_file.write_text("not a key\n")


def folder_for_a_key(desk: Desk) -> None:
    desk.key_file.unlink()
    desk.key_file.mkdir()


NO_KEY: dict[str, Callable[[Desk], object]] = {
    "no file": lambda desk: desk.key_file.unlink(),
    "a file that all may read": lambda desk: desk.key_file.chmod(0o644),
    "a file of another key": key_of_another_store,
    "a file without a key": no_key_in_it,
    "a folder": folder_for_a_key,
}


@pytest.mark.parametrize("harm", NO_KEY.values(), ids=NO_KEY)
def test_without_its_key_the_store_is_not_said_to_lack_a_secret_and_the_keys_path_is_told(
    harness: Desk, harm: Callable[[Desk], object]
):
    harm(harness)
    reported = examined(harness, "--offline")
    assert any("keys" == where and str(harness.key_file) in text for where, text in findings(reported, "failure")), (
        reported
    )
    assert "not in the secret store" not in json.dumps(reported)
    assert any("secrets" == where and "could not be opened" in text for where, text in findings(reported, "warning"))
    refused = harness.type("secrets", "list")
    assert (2, True) == (refused.code, f"key: {harness.key_file}" in refused.err)


CONNECTOR = """\
apiVersion: agents.example.io/v1alpha1
kind: Connector
metadata: {name: slack-main}
spec:
  auth: {staticToken: {valueFrom: {secretRef: {ref: Secret/slack-main, key: bot_token}}}}
"""


def past_its_values(desk: Desk) -> bool:
    """Whether `serve` would start: the same broker, opened and closed."""

    async def opened() -> bool:
        try:
            async with open_broker("config", env={}, background=False):
                return True
        except ConfigInvalidError:
            return False

    return asyncio.run(opened())


@pytest.mark.parametrize(
    "missing", [(), SECRET, ("slack-main", "bot_token")], ids=["nothing", "an app's", "a connector's"]
)
def test_a_secret_fails_the_diagnosis_exactly_when_serve_would_refuse(harness: Desk, missing: tuple[str, ...]):
    """Each secret that the configuration names counts: a connector's own token as much as an app's client secret."""
    harness.write("slack-main", CONNECTOR)
    assert (
        0 == harness.type("secrets", "set", "slack-main", "bot_token", stdin=harness.canaries.mint("bot").reveal()).code
    )
    if missing:
        assert 0 == harness.type("secrets", "remove", *missing, "--yes").code
    failed = [text for check, text in findings(examined(harness, "--offline"), "failure") if check == "secrets"]
    assert past_its_values(harness) is not bool(missing)
    assert bool(missing) == bool(failed)
    assert all(f"oauthbroker secrets set {' '.join(missing)}" in text for text in failed)


def test_before_init_there_is_one_word_about_the_store_and_none_of_the_system(desk: Desk, idp: IdentityProvider):
    desk.serve_app_of(idp)
    reported = examined(desk, "--offline")
    failed = findings(reported, "failure")
    assert ["permissions"] == [
        check for check, text in failed if "There is no store yet. Run `oauthbroker init`" in text
    ]
    assert not [text for _, text in failed if "The system says" in text]
    assert not {"disk", "locks"} & {it["check"] for it in reported["checks"]}


def test_without_any_configuration_it_says_so(desk: Desk):
    reported = examined(desk, "--config", "nowhere")
    assert [("configuration", True)] == [
        (check, "No such file or directory" in text) for check, text in findings(reported, "failure")[:1]
    ]
    assert [] == findings(reported, "ok"), "nothing is claimed of a store that is not named"


def test_a_scope_that_is_no_right_is_told_where_it_belongs(harness: Desk):
    app = next(path for path in harness.folder.rglob("*.yaml") if "kind: OAuthApp" in path.read_text("utf-8"))
    text = app.read_text("utf-8")
    assert not [words for _, words in findings(examined(harness, "--offline"), "ok") if "alwaysScopes" in words]
    app.write_text(text.replace("scopes: [", "scopes: [offline_access, ", 1), "utf-8")
    (reported,) = [words for _, words in findings(examined(harness, "--offline"), "ok") if "alwaysScopes" in words]
    assert "offline_access stands in `scopes`" in reported


def test_parts_of_a_preset_that_an_app_replaces_are_told(harness: Desk, idp: IdentityProvider):
    text = APP.format(issuer=idp.issuer).replace("metadata: {name: mail}", "metadata: {name: own}")
    harness.write("own", text.replace("provider: oidc", "provider: google"))
    (reported,) = [
        words for _, words in findings(examined(harness, "--offline"), "ok") if "of the preset google" in words
    ]
    assert reported.startswith("own: The app has endpoints of its own, so these of the preset google are not used")
    assert "endpoints.revokeUrl" in reported
    assert "Write those that your installation has." in reported


def test_a_broken_app_does_not_hide_the_store(harness: Desk):
    harness.write("mail", "apiVersion: agents.example.io/v1alpha1\nkind: OAuthApp\nmetadata: {name: mail}\nspec: {}\n")
    reported = examined(harness, "--offline")
    assert {"keys", "permissions", "audit", "grants"} <= {
        it["check"] for it in reported["checks"] if it["severity"] == "ok"
    }


def no_discovery(idp: IdentityProvider) -> None:
    idp.script.discovery.answer(500, times=FOREVER)


def another_issuer(idp: IdentityProvider) -> None:
    idp.script.discovery.fields(issuer="http://127.0.0.1:1", times=FOREVER)


def no_keys(idp: IdentityProvider) -> None:
    idp.script.jwks.answer(200, {"keys": []}, times=FOREVER)


def no_pkce(idp: IdentityProvider) -> None:
    idp.script.discovery.fields(code_challenge_methods_supported=["plain"], times=FOREVER)


def breaks_off(idp: IdentityProvider) -> None:
    idp.script.token.close_after_accept(times=FOREVER)


@pytest.mark.parametrize(
    ("harm", "severity", "says"),
    [
        (no_discovery, "failure", "What its issuer publishes cannot be used"),
        (another_issuer, "failure", "the metadata names another issuer"),
        (no_keys, "failure", "Its key set is of no use"),
        (no_pkce, "failure", "Its issuer does not list PKCE with S256."),
        (breaks_off, "failure", "Its token endpoint cannot be asked: the exchange broke off"),
        (
            lambda idp: idp.script.token.answer(503, times=FOREVER),
            "warning",
            "Its token endpoint answers with status 503.",
        ),
        (lambda idp: idp.script.token.answer(404, times=FOREVER), "ok", "addresses answer"),
        (lambda idp: idp.script.token.endless(times=FOREVER), "ok", "addresses answer"),
    ],
)
def test_what_a_provider_does_wrong(
    harness: Desk, idp: IdentityProvider, harm: Callable[[IdentityProvider], None], severity: str, says: str
):
    harm(idp)
    reported = examined(harness)
    assert [True] == [says in text for check, text in findings(reported, severity) if check == "providers"]


def test_a_provider_that_is_gone_is_named_once_however_many_addresses_it_has(harness: Desk, idp: IdentityProvider):
    other = APP.format(issuer="http://127.0.0.1:9").replace("name: mail", "name: other")
    harness.write("other", other.replace("client-mail", "client-other"))
    reported = examined(harness)
    assert [("providers", True)] == [
        (check, text.startswith("other: ")) for check, text in findings(reported, "failure")
    ]


@pytest.mark.parametrize(
    ("host", "param", "says"),
    [
        (
            "https://{site}.mail.example",
            "{title: Your site}",
            "nothing to ask. {site}.mail.example differs by connection",
        ),
        ("{issuer}", "{oneOf: [north]}", "addresses answer."),
        ("https://{site}.mail.invalid", "{oneOf: [north]}", "endpoints cannot be asked: its name has no address"),
    ],
    ids=["a host of each customer", "a path of each customer", "hosts of a list: the first is asked"],
)
def test_a_host_that_differs_by_connection_is_no_provider_that_is_gone(
    harness: Desk, idp: IdentityProvider, host: str, param: str, says: str
):
    at = host.replace("{issuer}", f"{idp.issuer}/{{site}}")
    harness.write("other", TENANTS.format(at=at, param=param))
    reported = examined(harness)
    told = [text for check, text in findings(reported, "ok") + findings(reported, "failure") if check == "providers"]
    assert [True] == [says in text for text in told if text.startswith("other: ")]


@pytest.mark.parametrize(
    ("issuer", "env", "found"),
    [
        ("{issuer}", {"LOGIN_SECRET": "x"}, []),
        ("http://127.0.0.1:9", {"LOGIN_SECRET": "x"}, [("failure", "providers", "broker:login: ")]),
        ("{issuer}", {}, [("warning", "secrets", "login: ")]),
    ],
    ids=["well", "a provider that is gone", "a secret that is not there"],
)
def test_the_brokers_own_login_is_looked_after_as_an_apps_client(
    harness: Desk,
    idp: IdentityProvider,
    monkeypatch: pytest.MonkeyPatch,
    issuer: str,
    env: dict[str, str],
    found: list[tuple[str, str, str]],
):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    written = (harness.folder / "config" / "broker.yaml").read_text("utf-8")
    login = (
        "  login:\n    client: {clientId: an-id, clientSecret: {valueFrom: {env: LOGIN_SECRET}}}\n"
        f'    endpoints: {{issuer: "{issuer.format(issuer=idp.issuer)}"}}\n    subject: "corp:user:{{sub}}"\n'
    )
    harness.write("broker", written.replace("spec:\n", "spec:\n" + login))
    reported = examined(harness)
    said = [
        (severity, check, text) for severity in ("failure", "warning") for check, text in findings(reported, severity)
    ]
    assert [(severity, check) for severity, check, _ in found] == [
        (severity, check) for severity, check, text in said if text.startswith(("broker:login: ", "login: "))
    ]
    assert bool(found and found[0][1] == "providers") is not any(
        text.startswith("broker:login: ") for check, text in findings(reported, "ok") if check == "providers"
    )


def test_the_forecast_says_who_when_and_why(harness: Desk, idp: IdentityProvider):
    """A client that was changed: all users have to consent again now."""
    harness.write("mail", APP.format(issuer=idp.issuer).replace("client-mail", "client-new"))
    reported = examined(harness, "--offline")
    assert [("mail", ALICE, "registration", True)] == [
        (it["app"], it["subject"], it["why"], it["certain"]) for it in reported["forecast"]
    ]
    assert any(
        "1 subject has to agree again within 14 days, for 1 grant." in text for _, text in findings(reported, "warning")
    )
    plain = harness.type("doctor", "--forecast")
    assert 0 == plain.code
    assert re.search(rf"mail +{ALICE} +the app has another client id", plain.out)


def test_unknown_values_are_reported_too(harness: Desk):
    reported = examined(harness, "--offline")
    assert ([], {"mail": 1}) == (reported["forecast"], reported["unknownLifetimes"])
    plain = harness.type("doctor", "--forecast")
    assert (0, "") == (plain.code, plain.out)
    assert "No user, as far as is known." in plain.err
    assert "Unknown refresh token lifetime: 1 grant (1 of mail)." in plain.err


def test_keys_of_the_api_that_end_are_told_ahead(harness: Desk):
    harness.canaries.may_show("API key")
    for name, expires in (("old", "1s"), ("soon", "5d"), ("later", "60d"), ("ever", None)):
        done = harness.type("api-keys", "create", name, *(("--expires", expires) if expires else ()))
        harness.canaries.add(done.out.strip(), "API key")
    harness.type("api-keys", "rotate", "old", "--overlap", "0s")
    said = {
        text.partition(":")[0]: text
        for check, text in findings(examined(harness, "--offline"), "warning")
        if check == "apiKeys"
    }
    assert {"old", "soon"} == set(said)
    assert "oauthbroker api-keys rotate soon" in said["soon"]


def test_only_the_needed_parts_of_a_new_store_are_read(desk: Desk, idp: IdentityProvider):
    """Between `init` and the first broker there is a keyring and nothing else."""
    desk.serve_app_of(idp)
    desk.type("init")
    before: dict[str, bytes] = tree(desk.folder)
    reported = examined(desk, "--offline")
    assert [("secrets", True)] == [(check, "secrets set" in text) for check, text in findings(reported, "failure")]
    assert before == tree(desk.folder)
    assert ["keyring"] == [path.name for path in Path("store/data").iterdir()]


def test_the_receivers_of_forwarded_events_are_asked_and_get_no_event(
    harness: Desk, idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch
):
    secret = f"whsec_{'A' * 32}"
    monkeypatch.setenv("HOOK_SECRET", secret)
    harness.canaries.add(secret, "a webhook's secret")
    text = """apiVersion: agents.example.io/v1alpha1
kind: Forwarder
metadata: {{name: {0}}}
spec: {{agents: [{0}], webhook: {{url: "{1}", secrets: [{{valueFrom: {{env: HOOK_SECRET}}}}]}}}}
"""
    harness.write("answers", text.format("answers", f"{idp.base_url}/nowhere"))
    harness.write("silent", text.format("silent", "http://127.0.0.1:1/"))
    reported = examined(harness)
    found = {it["about"]: (it["severity"], it["text"]) for it in reported["checks"] if it["check"] == "forwarders"}
    assert ("ok", "Its webhook's server answers.") == found["answers"]
    assert "failure" == found["silent"][0]
    offline = examined(harness, "--offline")
    assert [] == [it for it in offline["checks"] if it["check"] == "forwarders"]
    monkeypatch.delenv("HOOK_SECRET")
    missing = [about for check, about in findings(examined(harness, "--offline"), "warning") if check == "secrets"]
    assert any("Forwarder/answers" in each for each in missing)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
def test_a_proxy_that_only_the_environment_names_is_reported(
    harness: Desk, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs on this machine leave by it, and the broker does not."""
    monkeypatch.setenv(name, "http://proxy.corp.example:3128")
    found = dict(findings(examined(harness), "warning"))
    assert f"{name} is set here, and the broker does not read it. Write spec.outgoingProxy" in found["configuration"]


def test_a_proxy_that_looks_names_up_is_reported_in_place_of_the_environments(
    harness: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.corp.example:3128")
    text = (harness.folder / "config" / "broker.yaml").read_text("utf-8")
    harness.write("broker", text + "  outgoingProxy: {url: 'http://127.0.0.1:9', resolve: proxy}\n")
    told = " ".join(text for _, text in findings(examined(harness), "warning"))
    assert "The proxy looks names up, so it alone keeps requests out of your own networks." in told
    assert "HTTPS_PROXY" not in told
    checked = harness.type("check")
    assert (0, True) == (checked.code, "warning: outgoingProxy.resolve: proxy." in checked.err)


@pytest.mark.parametrize(
    "value, told",
    [(None, "Environment PROXY_LOGIN is not set."), ("corp", "The value of environment PROXY_LOGIN has no colon.")],
)
def test_a_login_at_the_proxy_is_a_matter_of_the_proxy_and_of_no_app(
    value: str | None, told: str, harness: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is not None:
        monkeypatch.setenv("PROXY_LOGIN", value)
    text = (harness.folder / "config" / "broker.yaml").read_text("utf-8")
    login = "{valueFrom: {env: PROXY_LOGIN}}"
    harness.write("broker", text + f"  outgoingProxy: {{url: 'http://127.0.0.1:9', credentials: {login}}}\n")
    reported = examined(harness, "--offline")
    found = [*findings(reported, "warning"), *findings(reported, "failure")]
    secrets = [text for check, text in found if check == "secrets"]
    assert (1, True) == (len(secrets), secrets[0].startswith(f"outgoingProxy: {told}")), secrets


def test_an_app_whose_client_the_provider_refuses_is_named(desk: Desk, idp: IdentityProvider) -> None:
    desk.ready_to_serve(idp)
    idp.change(CLIENT_ID, access_lifetime=1)
    desk.connect("alice", idp)
    idp.script.refresh.refuse("invalid_client", 401, times=FOREVER)

    async def is_refused() -> bool:
        of = turn(user=f"idp:user:{idp.account('alice').sub}")
        async with open_broker("config", background=False) as broker:
            return (await broker.oauth(of).get_access_token("mail")).status == "error"

    until(lambda: asyncio.run(is_refused()))
    warned = [text for check, text in findings(examined(desk, "--offline"), "warning") if check == "grants"]
    assert any("whose refreshes fail" in text for text in warned), warned
    assert any(text.startswith("mail: The provider refuses this client: ") for text in warned), warned


def test_a_printed_command_runs_as_it_is_printed(desk: Desk) -> None:
    """Follow the printed commands from another folder, one after the other, until the store is there."""
    desk.write("mail", APP.format(issuer="https://idp.example"))
    Path("config").rename("my config")
    for words in (("doctor", "--offline"), ("grants", "list"), ("serve",)):
        done = desk.type(*words, "--config", "my config")
        assert "`oauthbroker init --config 'my config'`" in done.out + done.err, done
    assert 0 == desk.type("init", "--config", "my config").code
    for done in (desk.type("check", "my config"), desk.type("check", "--config", "my config")):
        assert "`oauthbroker secrets set NAME KEY --config 'my config'`" in done.err
    done = desk.type("serve", "--config", "my config")
    assert "`oauthbroker secrets set mail client_secret --config 'my config'`" in done.err
    assert 0 == desk.type(*shlex.split("secrets set mail client_secret --config 'my config'"), stdin="value").code
    assert "`oauthbroker serve --config 'my config'`" in desk.type("health", "--config", "my config").err
    assert "create NAME --config 'my config'`" in desk.type("api-keys", "list", "--config", "my config").err
