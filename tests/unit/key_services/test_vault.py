"""A transit key of Vault or OpenBao opens a keyring. The service is a stand-in (tests/kit/vault_stand_in.py)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.key_services.vault import VaultTransit
from oauthbroker.store.keys.keyring import Keyring
from oauthbroker.store.keys.keyring_home import KeyringFile
from oauthbroker.testing.key_provider_contract import KeyProviderContract, code_of
from tests.kit.vault_stand_in import TOKEN, VaultStandIn, vault_stand_in


@pytest.fixture(scope="module")
def running() -> Iterator[VaultStandIn]:
    with vault_stand_in() as vault:
        yield vault


@pytest.fixture
def vault(running: VaultStandIn) -> Iterator[VaultStandIn]:
    running.asked.clear()
    yield running
    running.status = 0


def transit(vault: VaultStandIn, key: str = "oauthbroker", token: str = TOKEN, **more: Any) -> VaultTransit:
    return VaultTransit(address=vault.address, key=key, token=Secret(token), **more)


class TestVault(KeyProviderContract):
    @pytest.fixture
    def provider(self, vault: VaultStandIn) -> VaultTransit:
        return transit(vault)

    @pytest.fixture
    def stranger(self, vault: VaultStandIn) -> VaultTransit:
        return transit(vault, "other")


def test_a_keyring_is_opened_by_one_request_and_its_wrap_is_tried_before_it_is_kept(
    vault: VaultStandIn, tmp_path: Path
):
    path = tmp_path / "store" / "data" / "keyring"
    made = KeyringFile(path, transit(vault)).create()
    opened = KeyringFile(path, transit(vault)).load()
    assert made.store_id == opened.store_id
    encrypt, decrypt = "/v1/transit/encrypt/oauthbroker", "/v1/transit/decrypt/oauthbroker"
    assert [encrypt, decrypt, decrypt] == vault.asked
    assert [transit(vault).id()] == [wrap.kek for wrap in opened.wraps]


def test_a_new_version_of_the_transit_key_opens_the_keyring_and_the_next_wrap_has_it(vault: VaultStandIn):
    kek = transit(vault)
    before = Keyring.fresh().wrapped_for([kek])
    vault.keys["oauthbroker"].append(bytes(32))
    after = Keyring.opened(before.document(), kek).wrapped_for([kek])
    assert before.store_id == Keyring.opened(after.document(), kek).store_id
    assert kek._ask("encrypt", {"plaintext": "AA=="}, b"", "ciphertext").startswith("vault:v2:")


@pytest.mark.parametrize(
    "status, said",
    [(403, "the token is refused"), (404, "no such engine"), (503, "sealed"), (500, "status 500")],
)
def test_a_service_that_refuses_is_one_clear_error(vault: VaultStandIn, status: int, said: str):
    document = Keyring.fresh().wrapped_for([transit(vault)]).document()
    vault.status = status
    with pytest.raises(BrokerError, match=said) as caught:
        Keyring.opened(document, transit(vault))
    assert Code.KEY_UNKNOWN == caught.value.code
    assert transit(vault).id() in caught.value.note


def test_a_service_that_does_not_answer_is_one_clear_error(vault: VaultStandIn, tmp_path: Path):
    nowhere = VaultTransit(address="http://127.0.0.1:9", key="oauthbroker", token=Secret(TOKEN))
    with pytest.raises(BrokerError, match="no answer") as caught:
        nowhere.health()
    assert Code.KEY_UNKNOWN == caught.value.code


def test_a_wrong_token_is_refused_and_not_quoted(vault: VaultStandIn):
    with pytest.raises(BrokerError, match="the token is refused") as caught:
        transit(vault, token="hvs.wrong-canary").health()
    assert "canary" not in str(caught.value)


def test_the_file_of_a_token_is_read_at_each_request(vault: VaultStandIn, tmp_path: Path):
    file = tmp_path / "token"
    kek = VaultTransit(address=vault.address, key="oauthbroker", token_file=str(file))
    assert Code.KEY_UNKNOWN == code_of(kek.health)
    file.write_text("old\n")
    assert Code.KEY_UNKNOWN == code_of(kek.health)
    file.write_text(f"{TOKEN}\n")
    kek.health()


def test_without_a_token_the_error_names_the_setting(vault: VaultStandIn):
    with pytest.raises(BrokerError, match=r"keys\.vault\.token"):
        VaultTransit(address=vault.address, key="oauthbroker").health()


def test_the_namespace_is_sent_and_is_part_of_the_id(vault: VaultStandIn):
    kek = transit(vault, namespace="team-a/")
    kek.health()
    assert "team-a/" in vault.namespaces
    assert kek.id().endswith("/team-a/transit/oauthbroker")
    assert transit(vault).id() != kek.id()


async def test_it_works_on_a_thread_that_runs_an_event_loop(vault: VaultStandIn):
    transit(vault).health()
