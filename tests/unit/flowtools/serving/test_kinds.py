"""The FlowService of a bundle: its problems are refused with their place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import check_config
from tests.kit.flow_bundle import SERVICE, bundle
from tests.unit.flowtools.serving.jwt_kit import key, key_set

pytestmark = [
    pytest.mark.rule("run-serves"),
    pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning"),  # of a short key
]
BROKER = (
    "apiVersion: agents.example.io/v1alpha1\nkind: Broker\nmetadata: {name: broker}\nspec: {plugins: [flowtools]}\n"
)
ISSUER = SERVICE["issuers"][0]


def problems(folder: Path, **service: Any) -> list[str]:
    (folder / "broker.yaml").write_text(BROKER)
    bundle(folder, **service)
    return list(check_config(folder))


@pytest.mark.parametrize(
    "service",
    [
        {},
        {"mail": "smtps://shop@m.example?from=a@b.example", "mailPassword": {"valueFrom": {"env": "MAIL"}}},
        {"issuers": [ISSUER, {**ISSUER, "issuer": "https://b.example", "id": "b:{sub}"}]},
        {
            "issuers": [
                {**ISSUER, "subjects": {"user": "a:user:{sub}", "global": "shop:{team}"}},
                {**ISSUER, "issuer": "https://b.example", "id": "b:{sub}", "subjects": {"user": "b:user:{sub}"}},
            ]
        },
        {
            "issuers": [
                {**ISSUER, "id": "shop:{sub}"},
                {**ISSUER, "issuer": "https://b.example", "id": "shop2:{sub}"},
            ]
        },
    ],
    ids=[
        "plain",
        "mail with a login",
        "ids of two parts",
        "subjects with words of their own",
        "ids with words of one beginning",
    ],
)
def test_a_service_without_a_problem_has_no_problem(tmp_path: Path, service: dict[str, Any]) -> None:
    assert [] == problems(tmp_path, **service)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "two places of keys": (
        {"issuers": [{**ISSUER, "jwksUrl": "https://a.example/k"}]},
        "Not exactly one of jwksUrl and",
    ),
    "no place of keys": ({"issuers": [{**ISSUER, "jwks": {"keys": []}}]}, "No usable key"),
    "an RSA key that is too short": ({"issuers": [{**ISSUER, "jwks": key_set("rsa-short")}]}, "No usable key"),
    "no type of tokens": ({"issuers": [{**ISSUER, "types": []}]}, "types"),
    "a private key": ({"issuers": [{**ISSUER, "jwks": {"keys": [key("ec").as_dict(private=True)]}}]}, "No usable key"),
    "keys over plain HTTP": ({"issuers": [{**ISSUER, "jwks": None, "jwksUrl": "http://a.example"}]}, "No URL of a key"),
    "a shared secret as algorithm": ({"issuers": [{**ISSUER, "algorithms": ["HS256"]}]}, "algorithms"),
    "no algorithm": ({"issuers": [{**ISSUER, "algorithms": ["none"]}]}, "algorithms"),
    "one id for all": ({"issuers": [{**ISSUER, "id": "ada"}]}, "One text for all callers"),
    "the id of a service": ({"issuers": [{**ISSUER, "id": "service:{sub}"}]}, "ids of API keys or services"),
    "two issuers of one subject": (
        {
            "issuers": [
                {**ISSUER, "subjects": {"user": "shop:user:{sub}"}},
                {
                    **ISSUER,
                    "issuer": "https://b.example",
                    "id": "b:{sub}",
                    "subjects": {"user": "shop:{kind}:{email}"},
                },
            ]
        },
        "issuers[1].subjects.user: May be that of another issuer. Write one that tells the subjects",
    ),
    "two issuers of one id": (
        {"issuers": [ISSUER, {**ISSUER, "issuer": "https://b.example"}]},
        "issuers[1].id: May be that of another issuer. Write one that tells the callers",
    ),
    "an id that the other issuer can make": (
        {"issuers": [ISSUER, {**ISSUER, "issuer": "https://b.example", "id": "shop-{sub}"}]},
        "that of another issuer",
    ),
    "an id that a claim makes that of an API key": (
        {"issuers": [{**ISSUER, "id": "{kind}:{sub}"}]},
        "ids of API keys or services",
    ),
    "one issuer twice": ({"issuers": [ISSUER, {**ISSUER, "id": "b-{sub}"}]}, "that of another issuer"),
    "a claim of a service": ({"services": {"n": {"subjects": {"global": "t:{sub}"}}}}, "there are none"),
    "a folder without entities": ({"entities": ["nowhere"]}, "nowhere"),
    "mail without TLS": ({"mail": "smtp://mail.example?from=a@b.example"}, "No mail server"),
    "a login without its password": ({"mail": "smtps://shop@m.example?from=a@b.example"}, "No mail server"),
    "a password without its login": (
        {"mail": "smtps://m.example?from=a@b.example", "mailPassword": {"valueFrom": {"env": "MAIL"}}},
        "No mail server",
    ),
    "a payment without its adapter": ({"payments": {"stripe": {"settings": {}}}}, "adapter: Missing"),
    "a payment whose adapter is not installed": (
        {"payments": {"bank": {"adapter": "nosuch-bank"}}},
        "adapter: No installed package has this entry point in oauthbroker.flow_payments",
    ),
    "an SMS whose adapter is not installed": (
        {"sms": {"adapter": "nosuch"}},
        "sms.adapter: No installed package has this entry point in oauthbroker.flow_sms",
    ),
    "a secret of an adapter as plain text": ({"sms": {"adapter": "a", "secret": "pw"}}, "secret as plain text"),
    "a password as plain text": ({"database": "postgresql://u:pw@h/d"}, "secret as plain text"),
    "an unknown field": ({"entites": []}, "entities"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_problem_is_refused_with_its_place_and_no_value(tmp_path: Path, case: str) -> None:
    service, said = BAD[case]
    found = problems(tmp_path, **{name: _without_none(value) for name, value in service.items()})
    assert found, case
    assert any(said in each for each in found), found
    assert all("flows.yaml:1:" in each for each in found), found
    assert not any("pw@h" in each for each in found)


def test_a_damaged_entity_and_a_second_service_are_refused(tmp_path: Path) -> None:
    assert [] == problems(tmp_path)
    (tmp_path / "entities" / "bad.json").write_text(json.dumps({"name": "Bad", "fields": {"a": {"type": "nothing"}}}))
    (tmp_path / "more.yaml").write_text((tmp_path / "flows.yaml").read_text().replace('"name": "flows"', '"name": "b"'))
    found = check_config(tmp_path)
    assert 2 == sum("Entities that cannot be used: " in each for each in found)
    assert any("A second FlowService" in each for each in found)


def test_key_sets_of_tests_have_public_keys_alone() -> None:
    assert "d" not in key_set("rsa")["keys"][0]


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(each) for name, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list) else value
