"""Vault and OpenBao: a secret of the KV engine (version 2), and the transit engine with two POSTs, `encrypt` and
`decrypt`, with the context as associated data.

`rewrap` of the engine is not used: it takes no associated data, so it fails for a text that was encrypted with some. A
keyring gets a new data key instead, which the newest version of the transit key encrypts.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.strict_json import json_object
from oauthbroker.key_services.outside import MOST_BYTES, SECONDS, asked
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.protocol.messages import Method, ProviderRequest, ProviderResponse

_MOST_TOKEN: Final = 8 * 1024
_UNREADABLE: Final = "its answer cannot be read"
_REFUSED: Final = {
    401: "the token is refused",
    403: "the token is refused, or its policy lacks a right",
    404: "there is no such engine or key",
    503: "it is sealed or a standby",
}


class VaultClient:
    """One service and its token. Every call sends one request and blocks its thread, for at most `SECONDS`."""

    def __init__(
        self,
        *,
        address: str,
        about: str,
        namespace: str = "",
        token_file: str = "",
        token: Secret | None = None,
        ca: str = "",
        proxy: OutgoingProxy | None = None,
    ) -> None:
        """`address` is https, or http to a literal loopback address (an agent on this machine). `token_file` is read at
        each request, because agents replace it; `token` is used without one. `ca` (PEM) is trusted beside the
        system's; `proxy` leads out of the company's network. `about` names the key or secret, in errors."""
        self._address, self._about = address.rstrip("/"), about
        self._namespace, self._token_file, self._token, self._ca = namespace, token_file, token, ca
        self._proxy = proxy

    def send(self, method: Method, path: str, members: Mapping[str, str] | None = None) -> ProviderResponse:
        """Return the answer. Raises `keyUnknown` for a service that cannot be used, as far as no answer says so."""
        request = ProviderRequest(
            method,
            f"{self._address}/v1/{quote(path)}",
            headers=self._headers(),
            form=members,
            encoding="json",
            ca=self._ca,
        )
        return asked(lambda it: it.send(request, seconds=SECONDS, max_bytes=MOST_BYTES), self._proxy, self._about)

    def data(self, answer: ProviderResponse) -> Mapping[str, Any]:
        """Return the `data` of an answer. Raises `keyUnknown` for a refusal, and for one that cannot be read."""
        if answer.status != 200:
            raise self.unusable(_REFUSED.get(answer.status, f"status {answer.status}"))
        found = (json_object(answer.body) or {}).get("data")
        if not isinstance(found, dict):
            raise self.unusable(_UNREADABLE)
        return found

    def secret(self, mount: str, path: str) -> Mapping[str, Any] | None:
        """Return the newest version of a secret, None if there is none."""
        answer = self.send("GET", f"{mount}/data/{path}")
        if answer.status == 404:
            return None
        members = self.data(answer).get("data")
        if not isinstance(members, dict):
            raise self.unusable(_UNREADABLE)
        return members

    def unusable(self, why: str) -> BrokerError:
        return BrokerError(Code.KEY_UNKNOWN, note=f"{self._about}: {why}")

    def _headers(self) -> dict[str, str | Secret]:
        named = {"X-Vault-Namespace": self._namespace} if self._namespace else {}
        return {"X-Vault-Token": self._current_token(), "X-Vault-Request": "true", **named}

    def _current_token(self) -> Secret:
        if not self._token_file:
            if self._token is None:
                raise self.unusable("there is no token: set the variable that keys.vault.token names")
            return self._token
        try:
            with Path(self._token_file).open("rb") as file:
                text = file.read(_MOST_TOKEN).decode("ascii").strip()
        except (OSError, UnicodeError):
            text = ""
        if not text.isprintable() or not text:
            raise self.unusable("the file of its token cannot be read")
        return Secret(text)


class VaultTransit:
    """One transit key. `login` as for `VaultClient`."""

    def __init__(self, *, address: str, key: str, mount: str = "transit", namespace: str = "", **login: Any) -> None:
        self._key, self._mount = key, mount.strip("/")
        place = "/".join(filter(None, (namespace.strip("/"), self._mount, key)))
        self._id = f"vault:{urlsplit(address.rstrip('/')).netloc}/{place}"
        self._vault = VaultClient(address=address, namespace=namespace, about=self._id, **login)

    def __repr__(self) -> str:
        return f"VaultTransit({self._id})"

    def id(self) -> str:
        """Return the address, the namespace, the mount and the name of the key."""
        return self._id

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Encrypt under the newest version of the key. Raises `keyUnknown` for a service that cannot be used."""
        return self._ask("encrypt", {"plaintext": _b64(secret)}, context, "ciphertext").encode()

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Decrypt. Raises `keyMismatch` if the key does not open it, else as `wrap` does."""
        text = self._ask("decrypt", {"ciphertext": wrapped.decode("ascii", "replace")}, context, "plaintext")
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            pass
        raise self._vault.unusable(_UNREADABLE)

    def health(self) -> None:
        self.unwrap(self.wrap(b"probe", b"probe"), b"probe")

    def _ask(self, verb: str, members: dict[str, str], context: bytes, wanted: str) -> str:
        said = {**members, "associated_data": _b64(context)}
        answer = self._vault.send("POST", f"{self._mount}/{verb}/{self._key}", said)
        if answer.status == 400 and verb == "decrypt":
            raise BrokerError(Code.KEY_MISMATCH, note=f"{self._id} does not open this keyring")
        found = self._vault.data(answer).get(wanted)
        if not isinstance(found, str):
            raise self._vault.unusable(_UNREADABLE)
        return found


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
