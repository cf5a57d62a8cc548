"""A key in AWS KMS opens a keyring. The service is moto's server, in a process of its own."""

from __future__ import annotations

import asyncio
import base64
import logging
import subprocess
import sys
from collections.abc import Iterator

import boto3
import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.key_services.aws_kms import AwsKms
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.testing.key_provider_contract import KeyProviderContract
from tests.kit.connect_proxy import ConnectProxy
from tests.kit.kms_stand_in import ARN, ENVIRONMENT, REGION, kms_stand_in

SERVER = """
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
input()
server.stop()
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-W", "ignore", "-c", SERVER]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "stand-in")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "stand-in")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="module")
def keys(endpoint: str) -> list[str]:
    """The ARNs of two keys."""
    secrets = {"aws_access_key_id": "stand-in", "aws_secret_access_key": "stand-in"}
    client = boto3.client("kms", region_name=REGION, endpoint_url=endpoint, **secrets)
    return [client.create_key()["KeyMetadata"]["Arn"] for _ in range(2)]


class TestAwsKms(KeyProviderContract):
    @pytest.fixture
    def provider(self, endpoint: str, keys: list[str]) -> AwsKms:
        return AwsKms(key_arn=keys[0], endpoint=endpoint)

    @pytest.fixture
    def stranger(self, endpoint: str, keys: list[str]) -> AwsKms:
        return AwsKms(key_arn=keys[1], endpoint=endpoint)


def test_the_keyring_names_key_and_region(endpoint: str, keys: list[str]):
    kek = AwsKms(key_arn=keys[0], endpoint=endpoint)
    ring = Keyring.fresh().wrapped_for([kek])
    assert [keys[0]] == [wrap.kek for wrap in ring.wraps]
    assert REGION in ring.wraps[0].kek
    assert ring.store_id == Keyring.opened(ring.document(), kek).store_id


def refused(kek: AwsKms, code: Code = Code.KEY_UNKNOWN) -> str:
    with pytest.raises(BrokerError) as caught:
        kek.health()
    assert code == caught.value.code
    assert caught.value.note.startswith("arn:aws:kms:")
    return caught.value.note


def test_a_key_that_is_not_there_is_one_clear_error(endpoint: str, keys: list[str]):
    assert "NotFoundException" in refused(AwsKms(key_arn=f"{keys[0][:-4]}0000", endpoint=endpoint))


def test_a_service_that_does_not_answer_is_one_clear_error(keys: list[str]):
    assert "no answer" in refused(AwsKms(key_arn=keys[0], endpoint="http://127.0.0.1:9"))


def test_without_credentials_the_error_says_so(endpoint: str, keys: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "NoCredentialsError" in refused(AwsKms(key_arn=keys[0], endpoint=endpoint))


def test_without_boto3_the_error_names_the_extra(keys: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("oauthbroker.key_services.aws_service.find_spec", lambda _: None)
    assert "oauthbroker[aws]" in refused(AwsKms(key_arn=keys[0]))


def test_the_wrapped_key_is_in_no_log(endpoint: str, keys: list[str], caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    kek, secret = AwsKms(key_arn=keys[0], endpoint=endpoint), b"canary of 24 bytes......"
    assert secret == kek.unwrap(kek.wrap(secret, b"context"), b"context")
    assert base64.b64encode(secret).decode() not in caplog.text
    assert "canary" not in caplog.text


def test_a_proxy_of_the_environment_is_not_used(endpoint: str, keys: list[str], monkeypatch: pytest.MonkeyPatch):
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    AwsKms(key_arn=keys[0], endpoint=endpoint).health()


async def test_the_companys_proxy_gets_the_name_and_its_password_is_not_told(
    keys: list[str], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    async with ConnectProxy({}, credentials="corp:canary of a proxy") as proxy:
        for known, code in (
            ("corp:canary of a proxy", Code.KEY_UNKNOWN),
            ("corp:canary, wrong", Code.OUTGOING_PROXY_REFUSED),
        ):
            way = OutgoingProxy(host="127.0.0.1", port=proxy.port, credentials=Secret(known), resolves=True)
            note = await asyncio.to_thread(refused, AwsKms(key_arn=keys[0], proxy=way), code)
            assert "the outgoing proxy: it " in note
            assert base64.b64encode(known.encode()).decode() not in caplog.text
        assert {f"kms.{REGION}.amazonaws.com:443"} == {*proxy.asked}
        excepted = OutgoingProxy(host="127.0.0.1", port=proxy.port, direct_hosts=("kms.acme.invalid",))
        before = len(proxy.asked)
        kek = AwsKms(key_arn=keys[0], endpoint="https://kms.acme.invalid", proxy=excepted)
        assert "no address" in await asyncio.to_thread(refused, kek)
        assert before == len(proxy.asked)
    assert "canary" not in caplog.text


BUSY = [(503, "ServiceUnavailable"), (400, "ThrottlingException")]


def test_a_busy_service_is_asked_three_times(monkeypatch: pytest.MonkeyPatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("oauthbroker.key_services.aws_service._PAUSES", (0.01, 0.01, 0.0))
    with kms_stand_in() as kms:
        key = AwsKms(key_arn=ARN, endpoint=kms.address)
        for refusals in (BUSY, [*BUSY, BUSY[0]]):
            kms.refusals[:] = refusals
            kms.asked.clear()
            if refusals is BUSY:
                assert key.wrap(b"k" * 32, b"context")
            else:
                assert "ServiceUnavailable" in refused(key)
            assert ["Encrypt"] * 3 == kms.asked[:3]


@pytest.mark.parametrize(
    "said", [(400, "AccessDeniedException"), (400, "InvalidSignatureException"), (403, "a word of canaries")]
)
def test_a_refusal_is_named_by_the_services_word_alone(monkeypatch: pytest.MonkeyPatch, said: tuple[int, str]):
    with kms_stand_in() as kms:
        kms.refusals.append(said)
        note = refused(AwsKms(key_arn=ARN, endpoint=kms.address))
        assert note == f"{ARN}: {'refused' if ' ' in said[1] else said[1]}"
        assert 1 == len(kms.asked)
