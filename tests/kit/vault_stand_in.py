"""A stand-in for Vault and OpenBao, as far as their documentation says: `encrypt` and `decrypt` of an AES-256-GCM key with
associated data by the transit engine, and secrets of the KV engine, version 2, over HTTP on loopback. It is not Vault: its answers were read, not recorded."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.kit.json_server import Request, json_server

TOKEN = "hvs.stand-in"


class VaultStandIn:
    """Its keys by their names, each a list of versions; secrets of KV by mount and path. `status` answers everything with that status, if set."""

    def __init__(self) -> None:
        self.secrets: dict[str, dict[str, str]] = {}
        self.keys = {"oauthbroker": [os.urandom(32)], "other": [os.urandom(32)]}
        self.status = 0
        self.asked: list[str] = []
        self.namespaces: set[str | None] = set()
        self.address = ""

    def answer(self, path: str, token: str | None, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append(path)
        _, version, mount, verb, name = path.split("/", 4)
        if self.status:
            return self.status, {"errors": ["told to"]}
        if token != TOKEN:
            return 403, {"errors": ["permission denied"]}
        if verb == "data":
            found = self.secrets.get(f"{mount}/{name}")
            return (
                (404, {"errors": []}) if found is None else (200, {"data": {"data": found, "metadata": {"version": 1}}})
            )
        if version != "v1" or mount != "transit" or verb not in {"encrypt", "decrypt"}:
            return 404, {"errors": []}
        if name not in self.keys:
            return (404 if verb == "encrypt" else 400), {"errors": ["encryption key not found"]}
        return getattr(self, verb)(self.keys[name], body)  # type: ignore[no-any-return]

    def encrypt(self, versions: list[bytes], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        nonce = os.urandom(12)
        plain, data = (base64.b64decode(body[name], validate=True) for name in ("plaintext", "associated_data"))
        sealed = nonce + AESGCM(versions[-1]).encrypt(nonce, plain, data)
        return 200, {"data": {"ciphertext": f"vault:v{len(versions)}:{base64.b64encode(sealed).decode()}"}}

    def decrypt(self, versions: list[bytes], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        try:
            prefix, number, text = body["ciphertext"].split(":")
            sealed = base64.b64decode(text, validate=True)
            key = {"vault": versions}[prefix][int(number.removeprefix("v")) - 1]
            data = base64.b64decode(body["associated_data"], validate=True)
            plain = AESGCM(key).decrypt(sealed[:12], sealed[12:], data)
        except (ValueError, LookupError, InvalidTag):
            return 400, {"errors": ["cipher: message authentication failed"]}
        return 200, {"data": {"plaintext": base64.b64encode(plain).decode()}}


@contextmanager
def vault_stand_in() -> Iterator[VaultStandIn]:
    vault = VaultStandIn()

    def answer(request: Request) -> tuple[int, dict[str, Any]]:
        vault.namespaces.add(request.headers["x-vault-namespace"])
        return vault.answer(request.path, request.headers["x-vault-token"], json.loads(request.body or b"{}"))

    with json_server(answer) as vault.address:
        yield vault
