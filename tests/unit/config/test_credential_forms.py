"""`inject`, `verify.refused` and `api.paths` of a CredentialApp: what loads, and what `check` says once of a mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.model.static_credential import Placement
from tests.unit.config.bundles import BROKER, HEAD, loaded_with_values, problems_in, write

APP = (
    BROKER
    + "---\n"
    + HEAD
    + """kind: CredentialApp
metadata: {name: meter}
spec:
  subjectMode: user
  fields: {a: {title: A}}
  inject: INJECT
  verify: {path: /me, account: "idp:user:{id}", refused: REFUSED}
  api: {hosts: [api.example.com], paths: PATHS}
"""
)


def app(inject: str = '{bearer: "{a}"}', refused: str = "[400]", paths: str = "[/v1/issues]") -> str:
    return APP.replace("INJECT", inject).replace("REFUSED", refused).replace("PATHS", paths)


def test_headers_stand_beside_another_form(tmp_path: Path) -> None:
    text = app('{basic: {username: "{a}", password: x}, headers: {X-Version: "2"}}')
    _, bundle = loaded_with_values(write(tmp_path, meter=text))
    made = bundle.apps["meter"]
    assert made.credential is not None
    assert made.credential.verification is not None
    basic = {"username": "{a}", "password": "x"}
    assert Placement(kind="basic", texts=basic, beside={"X-Version": "2"}) == made.credential.placement
    assert ((400,), ("/v1/issues",)) == (made.credential.verification.refused, made.api.paths)
    assert {"authorization", "X-Version"} == set(made.carriers)


@pytest.mark.parametrize(
    ("at", "words", "text"),
    [
        ("spec.inject", "Missing", app("{}")),
        ("spec.inject", "Two forms", app('{bearer: "{a}", query: {key: "{a}"}}')),
        ("spec.inject", "Two forms", app('{path: "/x{a}", headers: {X-A: "{a}"}, bearer: "{a}"}')),
        ("spec.inject", "same header twice", app('{bearer: "{a}", headers: {authorization: x}}')),
        ("spec.inject", "same header twice", app('{headers: {X-A: "{a}", x_a: "{a}"}}')),
        ("spec.inject.path", "Not a path with a field", app('{path: "/x/../{a}"}')),
        ("spec.inject.path", "Not a path with a field", app("{path: /x}")),
        ("spec.inject.headers.Host", "Host is not a header for a token", app('{headers: {Host: "{a}"}}')),
        (
            "spec.fields.?.obtain",
            "Not an https address",
            app().replace("{title: A}", "{title: A, obtain: meter.example}"),
        ),
        ("spec.verify.host", "Not a host of AWS", app().replace("verify: {", "verify: {host: ghe.example.com, ")),
        ("spec.inject.headers.?", "Not a header for a token", app('{bearer: "{a}", headers: {X-Forwarded-For: x}}')),
        ("spec.inject.bearer", "Not a text for a credential", app('{bearer: "{a}\\r\\nX: 1"}')),
        ("spec.inject.bearer", "Not a text for a credential", app('{bearer: "{a"}')),
        ("spec.fields.a", "Inject does not use it", app("{headers: {}}")),
        ("spec.verify.refused[0]", "at least 400", app(refused="[200]")),
        ("spec.api.paths[0]", "Not the beginning of a path", app(paths="[v1]")),
        ("spec.api.paths[0]", "Not the beginning of a path", app(paths="[/v1/../x]")),
        ("spec.api.paths[0]", "Not the beginning of a path", app(paths='["/v1?a"]')),
        ("spec.api.paths[0]", "Not the beginning of a path", app(paths='["/%2e%2e/"]')),
        ("spec.api.paths[1]", "The same path twice", app(paths="[/v1, /v1]")),
        ("spec.api.paths", "An empty list", app(paths="[]")),
    ],
)
def test_a_mistake_is_said_once(tmp_path: Path, at: str, words: str, text: str) -> None:
    (problem,) = problems_in(write(tmp_path, meter=text))
    assert at == problem.path
    assert words in str(problem)
