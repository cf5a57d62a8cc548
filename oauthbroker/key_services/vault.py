"""The transit engine of Vault and OpenBao: two POSTs, `encrypt` and `decrypt`, with the context as associated data.

`rewrap` of the engine is not used: it takes no associated data, so it fails for a text that was encrypted with some. A
keyring gets a new data key instead, which the newest version of the transit key encrypts.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.key_services.outside import MOST_BYTES, SECONDS, asked
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse

_MOST_TOKEN: Final = 8 * 1024
_REFUSED: Final = {
    401: "the token is refused",
    403: "the token is refused, or its policy lacks a right on the key",
    404: "there is no such transit engine or key",
    503: "it is sealed or a standby",
}


class VaultTransit:
    """One transit key. Every call sends one request and blocks its thread, for at most `SECONDS`."""

    def __init__(
        self,
        *,
        address: str,
        key: str,
        mount: str = "transit",
        namespace: str = "",
        token_file: str = "",
        token: Secret | None = None,
        ca: str = "",
        proxy: OutgoingProxy | None = None,
    ) -> None:
        """`address` is https, or http to a literal loopback address (an agent on this machine). `token_file` is read at
        each request, because agents replace it; `token` is used without one. `ca` (PEM) is trusted beside the
        system's; `proxy` leads out of the company's network."""
        self._address, self._key, self._mount = address.rstrip("/"), key, mount.strip("/")
        self._namespace, self._token_file, self._token, self._ca = namespace, token_file, token, ca
        self._proxy = proxy

    def __repr__(self) -> str:
        return f"VaultTransit({self.id()})"

    def id(self) -> str:
        """Return the address, the namespace, the mount and the name of the key."""
        place = "/".join(filter(None, (self._namespace.strip("/"), self._mount, self._key)))
        return f"vault:{urlsplit(self._address).netloc}/{place}"

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
        raise self._unusable("its answer cannot be read")

    def health(self) -> None:
        self.unwrap(self.wrap(b"probe", b"probe"), b"probe")

    def _ask(self, verb: str, members: dict[str, str], context: bytes, wanted: str) -> str:
        request = ProviderRequest(
            "POST",
            f"{self._address}/v1/{quote(self._mount)}/{verb}/{quote(self._key, safe='')}",
            headers=self._headers(),
            form={**members, "associated_data": _b64(context)},
            encoding="json",
            ca=self._ca,
        )
        answer = asked(lambda it: it.send(request, seconds=SECONDS, max_bytes=MOST_BYTES), self._proxy, self.id())
        return self._member(verb, answer, wanted)

    def _member(self, verb: str, answer: ProviderResponse, wanted: str) -> str:
        if answer.status == 400 and verb == "decrypt":
            raise BrokerError(Code.KEY_MISMATCH, note=f"{self.id()} does not open this keyring")
        if answer.status != 200:
            raise self._unusable(_REFUSED.get(answer.status, f"status {answer.status}"))
        try:
            found = json.loads(answer.body)["data"][wanted]
        except (ValueError, KeyError, TypeError, RecursionError):
            found = None
        if not isinstance(found, str):
            raise self._unusable("its answer cannot be read")
        return found

    def _headers(self) -> dict[str, str | Secret]:
        named = {"X-Vault-Namespace": self._namespace} if self._namespace else {}
        return {"X-Vault-Token": self._current_token(), "X-Vault-Request": "true", **named}

    def _current_token(self) -> Secret:
        if not self._token_file:
            if self._token is None:
                raise self._unusable("there is no token: set the variable that keys.vault.token names")
            return self._token
        try:
            with Path(self._token_file).open("rb") as file:
                text = file.read(_MOST_TOKEN).decode("ascii").strip()
        except (OSError, UnicodeError):
            text = ""
        if not text.isprintable() or not text:
            raise self._unusable("the file of its token cannot be read")
        return Secret(text)

    def _unusable(self, why: str) -> BrokerError:
        return BrokerError(Code.KEY_UNKNOWN, note=f"{self.id()}: {why}")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
