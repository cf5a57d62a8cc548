"""A store whose key is in a key service: made, used, and refused with one clear error when the service is not usable.
Vault is a stand-in (tests/kit/vault_stand_in.py)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.cli import Desk
from tests.kit.vault_stand_in import TOKEN, VaultStandIn, vault_stand_in


@pytest.fixture
def vault() -> Iterator[VaultStandIn]:
    with vault_stand_in() as running:
        yield running


@pytest.fixture
def in_vault(desk: Desk, vault: VaultStandIn) -> Desk:
    (desk.folder / "token").write_text(TOKEN)
    written = (desk.folder / "config" / "broker.yaml").read_text().splitlines(keepends=True)
    keys = f"  keys: {{vault: {{address: '{vault.address}', key: oauthbroker, tokenFile: ../token}}}}\n"
    desk.write("broker", "".join([*(line for line in written if not line.startswith("  keys:")), keys]))
    return desk


def test_a_store_is_made_and_opened_without_any_key_file(in_vault: Desk, vault: VaultStandIn):
    made = in_vault.type("init")
    assert (0, True) == (made.code, "vault:" in made.out), made
    assert not in_vault.key_file.exists()
    assert 0 == in_vault.type("secrets", "set", "mail", "client_secret", stdin="s" * 20).code
    assert "mail" in in_vault.type("secrets", "list").out
    document = json.loads(Path("store/data/keyring").read_text())
    assert [f"vault:{vault.address.removeprefix('http://')}/transit/oauthbroker"] == [
        it["kek"] for it in document["wraps"]
    ]
    assert "vault oauthbroker" in in_vault.type("doctor", "--offline").out


UNUSABLE: dict[str, tuple[Callable[[Desk, VaultStandIn], Any], str]] = {
    "sealed": (lambda desk, vault: setattr(vault, "status", 503), "it is sealed or a standby"),
    "a lost token": (lambda desk, vault: (desk.folder / "token").unlink(), "file of its token cannot be read"),
    "a wrong token": (lambda desk, vault: (desk.folder / "token").write_text("hvs.other"), "the token is refused"),
    "another key": (lambda desk, vault: vault.keys.update(oauthbroker=[bytes(32)]), "does not open this keyring"),
    "no key": (lambda desk, vault: vault.keys.clear(), "does not open this keyring"),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_a_service_that_cannot_be_used_refuses_the_start_and_changes_nothing(
    in_vault: Desk, vault: VaultStandIn, what: str
):
    assert 0 == in_vault.type("init").code
    before = Path("store/data/keyring").read_bytes()
    spoil, said = UNUSABLE[what]
    spoil(in_vault, vault)
    for command in (("secrets", "set", "mail", "a"), ("secrets", "list"), ("doctor", "--offline")):
        refused = in_vault.type(*command, stdin="s" * 20)
        assert (2, True) == (refused.code, said in refused.out + refused.err), refused
    assert before == Path("store/data/keyring").read_bytes()
    assert not list(Path("store/data").glob("secrets/*"))
