"""Mistakes in a CredentialApp: each is one problem, at its place, with what to do, and no crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.config import ConfigInvalidError, load

BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {name: broker}
spec: {publicBaseUrl: "http://127.0.0.1:8484"}
"""
APP = """\
apiVersion: agents.example.io/v1alpha1
kind: CredentialApp
metadata: {name: meter}
spec:
  subjectMode: user
  fields: {apiKey: {title: API key, pattern: "k-[0-9]+", obtain: "https://meter.example/keys"}}
  inject: {headers: {X-Api-Key: "{apiKey}"}}
  api: {hosts: [api.meter.example]}
  verify: {path: /me, account: "meter:user:{id}"}
  life: {days: 90}
"""
INJECT = 'inject: {headers: {X-Api-Key: "{apiKey}"}}'
VERIFY = 'verify: {path: /me, account: "meter:user:{id}"}'
# the wrong text, the right text, and the place of the problem
MISTAKES = [
    ("  feilds:", "  fields:", "spec.feilds"),
    ("  injct:", "  inject:", "spec.injct"),
    ("  verfy:", "  verify:", "spec.verfy"),
    ("  lief:", "  life:", "spec.lief"),
    ("kind: CredentialAp", "kind: CredentialApp", "kind"),
    ("subjectMode: team", "subjectMode: user", "spec.subjectMode"),
    ("{titel: API key,", "{title: API key,", "spec.fields.?.titel"),
    ("{pattern:", "{title: API key, pattern:", "spec.fields.?.title"),
    ('pattern: "k-[0-9"', 'pattern: "k-[0-9]+"', "spec.fields.?"),
    ('pattern: "k{99999999999999}"', 'pattern: "k-[0-9]+"', "spec.fields.?"),
    ("http://meter.example/keys", "https://meter.example/keys", "spec.fields.?.obtain"),
    ("{ApiKey: {title", "{apiKey: {title", "spec.fields"),
    ("fields: {}", 'fields: {apiKey: {title: API key, pattern: "k-[0-9]+", obtain: "https://meter.example/keys"}}', "spec.fields"),
    ("{apiKee}", "{apiKey}", "spec.inject"),
    ('inject: {bearer: "{apiKey}", query: {key: "{apiKey}"}}', INJECT, "spec.inject"),
    ("inject: {}", INJECT, "spec.inject"),
    ('inject: {bearre: "{apiKey}"}', INJECT, "spec.inject"),
    ('inject: {bearer: "{apiKey"}', INJECT, "spec.inject.bearer"),
    ('inject: {headers: {Host: "{apiKey}"}}', INJECT, "spec.inject.headers"),
    ('inject: {headers: {"X Api": "{apiKey}"}}', INJECT, "spec.inject.headers"),
    ('inject: {path: "/bot{apiKey}/"}', INJECT, "spec.inject.path"),
    ('inject: {path: "/bot"}', INJECT, "spec.inject.path"),
    ('inject: {query: {"a b": "{apiKey}"}}', INJECT, "spec.inject.query"),
    ('inject: {basic: {user: "{apiKey}"}}', INJECT, "spec.inject.basic"),
    ('inject: {awsSigV4: {accessKeyId: "{apiKey}", secretAccessKey: "{apiKey}", service: s3}}', INJECT, "spec.inject.awsSigV4"),
    ("api: {hosts: []}", "api: {hosts: [api.meter.example]}", "spec.api"),
    ("api: {host: [a.example]}", "api: {hosts: [api.meter.example]}", "spec.api.host"),
    ("hosts: [https://api.meter.example]", "hosts: [api.meter.example]", "spec.api.hosts"),
    ("hosts: [127.0.0.1]", "hosts: [api.meter.example]", "spec.api.hosts"),
    ("delivery: injected, hosts", "hosts", "spec.api.delivery"),
    ("{path: me,", "{path: /me,", "spec.verify.path"),
    ("{path: /../me,", "{path: /me,", "spec.verify.path"),
    ("{method: PUT, path: /me,", "{path: /me,", "spec.verify.method"),
    ("{acount: a, path: /me,", "{path: /me,", "spec.verify.acount"),
    ('account: "meter:user:{id"', 'account: "meter:user:{id}"', "spec.verify.account"),
    ("{host: sts.eu-west-1.amazonaws.com, path: /me,", "{path: /me,", "spec.verify.host"),
    ("{host: sts.example.com, path: /me,", "{path: /me,", "spec.verify.host"),
    ("verify: {path: /me}", VERIFY, "spec.owner.binding"),
    ("days: 0", "days: 90", "spec.life.days"),
    ("days: ninety", "days: 90", "spec.life.days"),
    ("life: {day: 90}", "life: {days: 90}", "spec.life"),
    ("scopes: [read]\n  subjectMode", "subjectMode", "spec.scopes"),
    ("client: {clientId: a}\n  subjectMode", "subjectMode", "spec.client"),
    ("fallback: team\n  subjectMode: global", "subjectMode: user", "spec.fallback"),
]  # fmt: skip


def test_the_app_without_a_mistake_is_valid(tmp_path: Path) -> None:
    tmp_path.joinpath("all.yaml").write_text(f"{BROKER}---\n{APP}", "utf-8")
    assert ["meter"] == list(load(tmp_path).apps)


@pytest.mark.parametrize(("wrong", "right", "place"), MISTAKES, ids=[wrong for wrong, _, _ in MISTAKES])
def test_a_mistake_is_told_at_its_place_with_what_to_do(tmp_path: Path, wrong: str, right: str, place: str) -> None:
    assert right in APP
    tmp_path.joinpath("all.yaml").write_text(f"{BROKER}---\n{APP.replace(right, wrong)}", "utf-8")
    with pytest.raises(ConfigInvalidError) as refused:
        load(tmp_path)
    problems = refused.value.problems
    assert [True] == [each.path.startswith(place) and bool(each.hint) for each in problems], list(map(str, problems))


TOOL = """\
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: reader}
spec: {auth: {oauthAppRef: OAuthApp/meter}}
"""
LOGIN = "owner: {binding: brokerLogin}\n  "
# the wrong text, the right text, what the hint says, and what only an OAuthApp has
HINTS = [
    (f"{LOGIN}subjectMode: global", "subjectMode: user", "localOperator", "authorizers"),
    (f"{LOGIN}subjectMode", "subjectMode", "write login: in the Broker, or binding: localOperator", "runtimeConfirm"),
    ("accounts: several\n  subjectMode", "subjectMode", "brokerLogin or, on loopback, localOperator", "channelCode"),
    ("life: {days: 9}", f"{VERIFY}\n  life: {{days: 90}}", "write verify.account, or owner.binding", "authorizers"),
    (f"days: 9}}\n{TOOL}", "days: 90}\n", "write CredentialApp/meter", "add the app"),
]


@pytest.mark.parametrize(("wrong", "right", "said", "never"), HINTS)
def test_a_hint_names_what_such_an_app_can_have(tmp_path: Path, wrong: str, right: str, said: str, never: str) -> None:
    assert right in APP
    tmp_path.joinpath("all.yaml").write_text(f"{BROKER}---\n{APP.replace(right, wrong)}", "utf-8")
    with pytest.raises(ConfigInvalidError) as refused:
        load(tmp_path)
    [hint] = [each.hint for each in refused.value.problems]
    assert said in hint
    assert never not in hint


@pytest.mark.parametrize(
    "field", ["client: {clientId: {value: a}}", "flow: authorizationCode", "scopes: [read]", "quirks: {}"]
)
def test_a_field_of_an_oauth_app_says_so(tmp_path: Path, field: str) -> None:
    """`client` is not taken for a misspelt `life`."""
    tmp_path.joinpath("all.yaml").write_text(f"{BROKER}---\n{APP}  {field}\n", "utf-8")
    with pytest.raises(ConfigInvalidError) as refused:
        load(tmp_path)
    (problem,) = refused.value.problems
    assert (f"spec.{field.partition(':')[0]}", True) == (problem.path, "it belongs to kind: OAuthApp" in problem.hint)
