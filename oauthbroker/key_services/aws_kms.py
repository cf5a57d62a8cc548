"""A symmetric key in AWS KMS, with the context as encryption context. Needs the extra `aws` (boto3)."""

from __future__ import annotations

import base64
from typing import Any, Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.key_services.aws_service import AwsService, ServiceRefused
from oauthbroker.model.outgoing_proxy import OutgoingProxy

_OTHER_KEY: Final = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})


class AwsKms:
    """One KMS key. Every call sends one request and blocks its thread."""

    def __init__(self, *, key_arn: str, endpoint: str = "", ca: str = "", proxy: OutgoingProxy | None = None) -> None:
        """`key_arn` is the whole ARN, `arn:aws:kms:<region>:<account>:key/<id>`: it names the region, and stays the
        same when an alias moves. The others as for `AwsService`."""
        self._arn = key_arn
        self._kms = AwsService(
            name="kms",
            target="TrentService",
            region=key_arn.split(":")[3],
            about=key_arn,
            endpoint=endpoint,
            ca=ca,
            proxy=proxy,
        )

    def __repr__(self) -> str:
        return f"AwsKms({self._arn})"

    def id(self) -> str:
        return self._arn

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Encrypt. Raises `keyUnknown` for a service that cannot be used."""
        return self._call("Encrypt", {"Plaintext": _b64(secret), **self._terms(context)}, "CiphertextBlob")

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Decrypt. Raises `keyMismatch` if the key does not open it, else as `wrap` does."""
        if not wrapped:  # KMS takes none, and calls it another mistake
            raise self._mismatch()
        return self._call("Decrypt", {"CiphertextBlob": _b64(wrapped), **self._terms(context)}, "Plaintext")

    def health(self) -> None:
        self.unwrap(self.wrap(b"probe", b"probe"), b"probe")

    def _terms(self, context: bytes) -> dict[str, Any]:
        return {"KeyId": self._arn, "EncryptionContext": {"oauthbroker": _b64(context)}}

    def _call(self, operation: str, members: dict[str, Any], wanted: str) -> bytes:
        try:
            return base64.b64decode(self._kms.call(operation, members)[wanted], validate=True)
        except ServiceRefused as refused:
            failed = self._mismatch() if refused.code in _OTHER_KEY else self._kms.unusable(refused.code)
        except (KeyError, TypeError, ValueError):
            failed = self._kms.unusable("its answer cannot be read")
        raise failed

    def _mismatch(self) -> BrokerError:
        return BrokerError(Code.KEY_MISMATCH, note=f"{self._arn} does not open this keyring")


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
