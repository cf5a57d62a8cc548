"""A symmetric key in AWS KMS, with the context as encryption context. Needs the extra `aws` (boto3)."""

from __future__ import annotations

import base64
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.observability.library_log import unlogged

SECONDS: Final = 5  # to connect, and for the answer; three tries
_OTHER_KEY: Final = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})


class AwsKms:
    """One KMS key. Every call sends one request and blocks its thread. Credentials are boto3's: environment, profile,
    or the machine's role."""

    def __init__(self, *, key_arn: str, endpoint: str = "", proxy: OutgoingProxy | None = None) -> None:
        """`key_arn` is the whole ARN, `arn:aws:kms:<region>:<account>:key/<id>`: it names the region, and stays the
        same when an alias moves. `endpoint` is a VPC endpoint or a stand-in; empty for the region's own. `proxy` leads
        out of the company's network and looks the service's name up."""
        self._arn, self._endpoint, self._proxy = key_arn, endpoint, proxy
        self._made: Any = None

    def __repr__(self) -> str:
        return f"AwsKms({self._arn})"

    def id(self) -> str:
        return self._arn

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Encrypt. Raises `keyUnknown` for a service that cannot be used."""
        return bytes(self._call("encrypt", Plaintext=secret, **self._terms(context))["CiphertextBlob"])

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Decrypt. Raises `keyMismatch` if the key does not open it, else as `wrap` does."""
        return bytes(self._call("decrypt", CiphertextBlob=wrapped, **self._terms(context))["Plaintext"])

    def health(self) -> None:
        self.unwrap(self.wrap(b"probe", b"probe"), b"probe")

    def _terms(self, context: bytes) -> dict[str, Any]:
        return {"KeyId": self._arn, "EncryptionContext": {"oauthbroker": base64.b64encode(context).decode()}}

    def _call(self, operation: str, **arguments: Any) -> Any:
        if find_spec("boto3") is None:
            raise self._unusable('it needs `pip install "oauthbroker[aws]"`')
        from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

        failed: BrokerError
        try:
            client = self._client()
            with unlogged("botocore"):  # at DEBUG it logs the key that is wrapped
                return getattr(client, operation)(**arguments)
        except ClientError as error:
            failed = self._refused(str(error.response.get("Error", {}).get("Code", "")))
        except ParamValidationError:
            failed = self._refused("InvalidCiphertextException")  # no bytes at all
        except (BotoCoreError, ValueError) as error:
            failed = self._unusable(type(error).__name__)
        raise failed

    def _refused(self, code: str) -> BrokerError:
        if code in _OTHER_KEY:
            return BrokerError(Code.KEY_MISMATCH, note=f"{self._arn} does not open this keyring")
        return self._unusable(code if code.isalnum() else "refused")

    def _client(self) -> Any:
        if self._made is None:
            import boto3
            from botocore.config import Config

            terms = Config(
                connect_timeout=SECONDS,
                read_timeout=SECONDS,
                retries={"total_max_attempts": 3},
                proxies={},  # left out, boto3 takes those of the environment
            )
            region = self._arn.split(":")[3]
            session = boto3.session.Session(region_name=region)
            made = session.client("kms", endpoint_url=self._endpoint or None, config=terms)
            host = urlsplit(made.meta.endpoint_url).hostname or ""
            if self._proxy is not None and self._proxy.is_for(host):
                terms = terms.merge(Config(proxies={"https": self._proxy.url}))
                made = session.client("kms", endpoint_url=self._endpoint or None, config=terms)
            self._made = made
        return self._made

    def _unusable(self, why: str) -> BrokerError:
        return BrokerError(Code.KEY_UNKNOWN, note=f"{self._arn}: {why}")
