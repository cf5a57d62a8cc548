"""Call an AWS service that speaks JSON, over our own transport. Needs the extra `aws` (boto3), which finds the
credentials and the service's address, and signs."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.strict_json import json_object
from oauthbroker.key_services.outside import MOST_BYTES, SECONDS, asked
from oauthbroker.model.outgoing_proxy import OutgoingProxy
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.network.api_transport import ApiLimits, ApiTransport
from oauthbroker.protocol.network.transport import Transport
from oauthbroker.protocol.request_signatures import signed

_LIMITS: Final = ApiLimits(stall_seconds=SECONDS / 2, seconds=SECONDS, answer_bytes=MOST_BYTES)
_PAUSES: Final = (0.2, 0.8, 0.0)  # after each try but the last
_BUSY: Final = frozenset({"ThrottlingException", "KMSInternalException", "DependencyTimeoutException"})


class ServiceRefused(Exception):
    """The service answered with an error. `code` is its word, such as `AccessDeniedException`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True, kw_only=True)
class AwsService:
    """One service in one region: `target` is its prefix in `X-Amz-Target`. Credentials are boto3's: environment,
    profile, or the machine's role. `endpoint` is a VPC endpoint or a stand-in, empty for the region's own; `ca` (PEM)
    is trusted beside the system's. `about` names the key or secret, in errors."""

    name: str
    target: str
    region: str
    about: str
    endpoint: str = ""
    ca: str = ""
    proxy: OutgoingProxy | None = None
    _session: Any = field(default=None, init=False, repr=False)

    def call(self, operation: str, members: dict[str, Any]) -> dict[str, Any]:
        """Return the members of the answer. Raises `ServiceRefused`, and as `asked` does."""
        request = self._signed(operation, members)
        status, body = asked(lambda transport: _tried(transport, request), self.proxy, self.about)
        said = json_object(body)
        if said is None:
            raise self.unusable(f"status {status}, and its answer cannot be read")
        if status != 200:
            raise ServiceRefused(_code(said))
        return said

    def unusable(self, why: str) -> BrokerError:
        return BrokerError(Code.KEY_UNKNOWN, note=f"{self.about}: {why}")

    def _signed(self, operation: str, members: dict[str, Any]) -> ApiRequest:
        if find_spec("boto3") is None:
            raise self.unusable('it needs `pip install "oauthbroker[aws]"`')
        from botocore.exceptions import BotoCoreError

        try:
            known, url = self._found()
        except (BotoCoreError, ValueError) as error:
            failed = self.unusable(type(error).__name__)
        else:
            at = urlsplit(url)
            request = ApiRequest(
                method="POST",
                scheme=at.scheme,
                host=at.hostname or "",
                port=at.port or (443 if at.scheme == "https" else 80),
                path="/",
                headers=[
                    (b"Content-Type", b"application/x-amz-json-1.1"),
                    (b"X-Amz-Target", f"{self.target}.{operation}".encode()),
                ],
                body=json.dumps(members).encode(),
                ca=self.ca,
            )
            return signed("awsSigV4", {**known, "service": self.name, "region": self.region}, request)
        raise failed

    def _found(self) -> tuple[dict[str, str], str]:
        """Return the credentials of now and the service's address. No request is sent to the service."""
        import boto3
        from botocore.exceptions import NoCredentialsError

        if self._session is None:
            self._session = boto3.session.Session(region_name=self.region)
        found = self._session.get_credentials()
        if found is None:
            raise NoCredentialsError
        key = found.get_frozen_credentials()
        known = {"accessKeyId": key.access_key, "secretAccessKey": key.secret_key}
        known |= {"sessionToken": key.token} if key.token else {}
        return known, self.endpoint or self._session.client(self.name).meta.endpoint_url


async def _tried(transport: Transport, request: ApiRequest) -> tuple[int, bytes]:
    """Send the request up to three times, while the service is busy."""
    api = ApiTransport(transport)
    try:
        for pause in _PAUSES:
            response = await api.send(request, _LIMITS)
            body = b"".join([piece async for piece in response.chunks()])
            await response.aclose()
            if not pause or (response.status < 500 and not any(each.encode() in body for each in _BUSY)):
                break
            await asyncio.sleep(pause)
        return response.status, body
    finally:
        await api.close()


def _code(said: dict[str, Any]) -> str:
    """Return the error's word: `__type` may have a namespace before it."""
    code = str(said.get("__type", "")).rpartition("#")[2]
    return code if code.isalnum() and len(code) < 100 else "refused"
