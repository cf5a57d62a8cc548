"""A team's key that lies in Vault or AWS Secrets Manager: read when it is used, and again after a rotation."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oauthbroker.cli.doctor.values_outside import values_outside
from oauthbroker.config import load
from oauthbroker.config.bundle.resolving import resolve
from oauthbroker.core.errors import Code
from oauthbroker.model.apps import App
from oauthbroker.model.provider_api import ApiAccess
from oauthbroker.model.settings import Settings
from oauthbroker.model.token_results import Failed
from oauthbroker.testing import IdentityProvider, TestClock
from oauthbroker.tokens.team_values import FRESH_SECONDS, KEPT_SECONDS, RETRY_SECONDS
from tests.kit.kms_stand_in import ENVIRONMENT, SECRET, KmsStandIn, kms_stand_in
from tests.kit.running_broker import BASE, Harness, running
from tests.kit.vault_stand_in import TOKEN, VaultStandIn, vault_stand_in
from tests.story.keys_kit import GOOD, NEWER, KeyApi, sent
from tests.unit.config.bundles import BROKER, HEAD, problems_in, write

APP = (
    HEAD
    + """kind: CredentialApp
metadata: {name: meter}
spec:
  subjectMode: global
  fields: {apiKey: {title: API key, pattern: "[a-z0-9-]+"}, tenant: {title: Tenant}}
  values:
    apiKey: {valueFrom: {vault: {path: team/meter, key: key}}}
    tenant: {valueFrom: {env: TENANT}}
  inject: {headers: {X-Api-Key: "{apiKey}", X-Tenant: "{tenant}"}}
  api: {hosts: [api.example.com]}
"""
)
IN_AWS = f"{{awsSecret: {{arn: '{SECRET}', key: key}}}}"
WHOLE = f"{{awsSecret: {{arn: '{SECRET}'}}}}"
IN_VAULT = "{vault: {path: team/meter, key: key}}"


@pytest.fixture
def vault() -> Iterator[VaultStandIn]:
    with vault_stand_in() as vault:
        yield vault


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[KmsStandIn]:
    with kms_stand_in() as aws:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL_SECRETS_MANAGER": aws.address}.items():
            monkeypatch.setenv(name, value)
        yield aws


def configured(folder: Path, address: str, values: str = IN_VAULT) -> tuple[App, Settings]:
    (folder / "token").write_text(TOKEN)
    broker = f"{BROKER.rstrip()}\n  vault: {{address: '{address}', tokenFile: ../token}}\n"
    bundle = resolve(
        load(write(folder / "config", broker=broker, app=APP.replace(IN_VAULT, values))), {"TENANT": "t-1"}, {}
    )
    return bundle.apps["meter"], bundle.settings


@asynccontextmanager
async def used(found: tuple[App, Settings], api: KeyApi, clock: TestClock) -> AsyncIterator[Harness]:
    app, said = found
    settings = Settings(public_base_url=BASE, weaken=frozenset({"plainHttpProvider"}), vault=said.vault)
    app = replace(app, api=ApiAccess((api.host,), injected=True))
    async with (
        IdentityProvider(clock=clock) as idp,
        running(idp, [app], clock=clock, settings=settings) as harness,
    ):
        yield harness
        for secret in (GOOD, NEWER, TOKEN):
            assert secret not in harness.log.getvalue()
            assert secret not in repr(harness.audit.lines)


async def status(harness: Harness, api: KeyApi) -> int | Code | None:
    answer = await sent(harness, api)
    return answer.code if isinstance(answer, Failed) else answer.status_code


def kept_in_vault(vault: VaultStandIn, key: str) -> None:
    vault.secrets["secret/team/meter"] = {"key": key, "another": "x"}


async def test_a_key_in_vault_is_read_once_for_many_requests(
    api: KeyApi, vault: VaultStandIn, test_clock: TestClock, tmp_path: Path
) -> None:
    kept_in_vault(vault, GOOD)
    async with used(configured(tmp_path, vault.address), api, test_clock) as harness:
        assert [] == vault.asked, "it is read when it is needed"
        for _ in range(3):
            assert 200 == await status(harness, api)
        assert (GOOD, "t-1") == (api.seen[-1].headers["x-api-key"], api.seen[-1].headers["x-tenant"])
        assert ["/v1/secret/data/team/meter"] == vault.asked
        assert [] == [it async for it in harness.broker.grants.list()]


@pytest.mark.parametrize("form", [IN_AWS, WHOLE], ids=["a member", "the whole text"])
async def test_a_key_in_aws_secrets_manager_is_read_and_rotated(
    api: KeyApi, aws: KmsStandIn, test_clock: TestClock, tmp_path: Path, form: str
) -> None:
    def text(key: str) -> str:
        return key if form == WHOLE else json.dumps({"key": key})

    aws.secrets[SECRET] = text(GOOD)
    async with used(configured(tmp_path, "http://127.0.0.1:9", form), api, test_clock) as harness:
        assert [200, 200] == [await status(harness, api), await status(harness, api)]
        assert ["GetSecretValue"] == aws.asked
        api.keys.pop(GOOD)
        aws.secrets[SECRET] = text(NEWER)
        test_clock.advance(2)
        assert 200 == await status(harness, api)
        assert NEWER == api.seen[-1].headers["x-api-key"]
        aws.secrets.clear()
        test_clock.advance(FRESH_SECONDS)
        assert Code.APP_MISCONFIGURED is await status(harness, api)


async def test_a_rotated_key_is_used_after_a_401_in_the_same_request(
    api: KeyApi, vault: VaultStandIn, test_clock: TestClock, tmp_path: Path
) -> None:
    kept_in_vault(vault, GOOD)
    async with used(configured(tmp_path, vault.address), api, test_clock) as harness:
        assert 200 == await status(harness, api)
        kept_in_vault(vault, NEWER)
        del api.keys[GOOD]
        test_clock.advance(2)
        assert 200 == await status(harness, api)
        assert NEWER == api.seen[-1].headers["x-api-key"]
        del api.keys[NEWER]
        test_clock.advance(2)
        asked = len(vault.asked)
        for _ in range(5):
            assert 401 == await status(harness, api), "the service has no other key"
        assert asked + 1 == len(vault.asked), "a flood of 401 does not reach the service"


async def test_a_rotated_key_is_used_when_the_old_one_is_no_longer_fresh(
    api: KeyApi, vault: VaultStandIn, test_clock: TestClock, tmp_path: Path
) -> None:
    kept_in_vault(vault, GOOD)
    async with used(configured(tmp_path, vault.address), api, test_clock) as harness:
        assert 200 == await status(harness, api)
        kept_in_vault(vault, NEWER)
        for seconds, key in ((FRESH_SECONDS - 1, GOOD), (1, NEWER)):
            test_clock.advance(seconds)
            assert 200 == await status(harness, api)
            assert key == api.seen[-1].headers["x-api-key"]


async def test_an_outage_keeps_the_last_value_for_a_day_and_asks_twice_a_minute(
    api: KeyApi, vault: VaultStandIn, test_clock: TestClock, tmp_path: Path
) -> None:
    kept_in_vault(vault, GOOD)
    async with used(configured(tmp_path, vault.address), api, test_clock) as harness:
        assert 200 == await status(harness, api)
        vault.status = 503
        test_clock.advance(FRESH_SECONDS)
        asked = len(vault.asked)
        for _ in range(5):
            assert 200 == await status(harness, api)
        assert asked + 1 == len(vault.asked)
        test_clock.advance(KEPT_SECONDS)
        assert Code.PROVIDER_UNREACHABLE is await status(harness, api)
        assert "Vault secret/team/meter key: it is sealed or a standby" in harness.log.getvalue()
        vault.status = 0
        test_clock.advance(RETRY_SECONDS)
        assert 200 == await status(harness, api)


UNUSABLE: dict[str, tuple[Callable[[VaultStandIn, Path], object], Code, str]] = {
    "no secret": (lambda vault, _: vault.secrets.clear(), Code.APP_MISCONFIGURED, "no such secret or key"),
    "no such key": (
        lambda vault, _: vault.secrets["secret/team/meter"].pop("key"),
        Code.APP_MISCONFIGURED,
        "no such secret or key",
    ),
    "another form": (lambda vault, _: kept_in_vault(vault, "Ab c"), Code.APP_MISCONFIGURED, "another pattern"),
    "a refused token": (
        lambda _, folder: (folder / "token").write_text("x"),
        Code.PROVIDER_UNREACHABLE,
        "the token is refused",
    ),
    "a lost token": (lambda _, folder: (folder / "token").unlink(), Code.PROVIDER_UNREACHABLE, "cannot be read"),
    "down": (lambda vault, _: setattr(vault, "status", 500), Code.PROVIDER_UNREACHABLE, "status 500"),
}


@pytest.mark.parametrize("what", UNUSABLE)
async def test_a_value_that_cannot_be_read_fails_the_request_and_names_the_place(
    api: KeyApi, vault: VaultStandIn, test_clock: TestClock, tmp_path: Path, what: str
) -> None:
    kept_in_vault(vault, GOOD)
    spoil, code, said = UNUSABLE[what]
    async with used(configured(tmp_path, vault.address), api, test_clock) as harness:
        spoil(vault, tmp_path)
        assert code is await status(harness, api)
        assert [] == api.seen
        assert "Vault secret/team/meter key: " in harness.log.getvalue()
        assert said in harness.log.getvalue()
        (tmp_path / "token").write_text(TOKEN)
        vault.status = 0
        kept_in_vault(vault, GOOD)
        test_clock.advance(RETRY_SECONDS)
        assert 200 == await status(harness, api)


async def test_doctor_reads_each_value_and_says_which_it_cannot(vault: VaultStandIn, tmp_path: Path) -> None:
    kept_in_vault(vault, GOOD)
    app, settings = configured(tmp_path, vault.address)
    cases: list[tuple[Callable[[], object], str, str]] = [
        (lambda: None, "ok", "can be read"),
        (lambda: kept_in_vault(vault, "A b"), "failure", "does not fit the field apiKey"),
        (vault.secrets.clear, "failure", "there is no such secret"),
    ]
    for spoil, severity, said in cases:
        spoil()
        (finding,) = await values_outside(settings, [app])
        assert (severity, True, "meter") == (finding.severity, said in finding.text, finding.about)
        assert "A b" not in repr(finding)


REFUSED = {
    "{vault: {path: ../sys, key: a}}": "Not the path of a secret in Vault",
    "{vault: {path: a%2Fb, key: a}}": "Not the path of a secret in Vault",
    "{vault: {mount: 'a b/..', path: a, key: a}}": "Not the mount of a secret in Vault",
    "{vault: {path: a}}": "Not the key of a secret",
    "{awsSecret: {arn: meter}}": "Not the ARN of a secret",
    f"{{awsSecret: {{arn: '{SECRET}', key: ' '}}}}": "Not the key of a secret",
    f"{{env: A, vault: {{path: a, key: b}}, awsSecret: {{arn: '{SECRET}'}}}}": "valueFrom is exactly one of",
    "{vault: {path: a, key: b}}": "A value in Vault, and no Vault that the broker may ask",
}


@pytest.mark.parametrize("written", REFUSED)
def test_a_place_that_is_none_is_refused_as_it_is_written(tmp_path: Path, written: str) -> None:
    app = APP.replace(IN_VAULT, written)
    problems = [str(each) for each in problems_in(write(tmp_path, broker=BROKER, app=app))]
    assert [True] == [REFUSED[written] in each and "spec.values.apiKey.valueFrom" in each for each in problems], (
        problems
    )


@pytest.mark.parametrize(
    ("login", "what"),
    [
        ("{address: 'http://vault.example', tokenFile: ../t}", "Not the address of Vault"),
        ("{address: 'https://vault.example'}", "spec.vault.tokenFile"),
        ("{address: 'https://vault.example', tokenFile: token}", "lie in the bundle"),
    ],
)
def test_a_vault_that_cannot_be_asked_as_written_is_refused(tmp_path: Path, login: str, what: str) -> None:
    broker = f"{BROKER.rstrip()}\n  vault: {login}\n"
    assert any(what in str(each) for each in problems_in(write(tmp_path, broker=broker, app=APP)))


def test_check_and_lists_say_where_the_value_lies(tmp_path: Path) -> None:
    loaded = load(
        write(
            tmp_path,
            broker=f"{BROKER.rstrip()}\n  vault: {{address: 'https://vault.example', tokenFile: /run/t}}\n",
            app=APP,
        )
    )
    assert {"Vault secret/team/meter key", "environment TENANT"} <= {each.described for each in loaded.sources}
    assert "/run/t" in loaded.settings.secret_places, "isolated tools do not see the token"
