"""Sign requests to an API: AWS Signature Version 4 by botocore, OAuth 1.0a (RFC 5849) by Authlib."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.header_names import spelled
from oauthbroker.model.static_credential import Placing
from oauthbroker.observability.library_log import unlogged
from oauthbroker.protocol.network.api_request import ApiRequest

_WITHOUT_PAYLOAD = frozenset({"s3", "s3express", "s3-object-lambda", "s3-outposts"})  # services that do not need it
_FORM = "application/x-www-form-urlencoded"


def signed(kind: Placing, texts: Mapping[str, str], request: ApiRequest) -> ApiRequest:
    """Return the signed request. Raises `requestInvalid` for a body that comes in pieces where all of it is signed, and
    `appMisconfigured` without the extra `aws`."""
    added = _aws(texts, request) if kind == "awsSigV4" else _oauth1(texts, request)
    more = [(name.encode("ascii"), text.encode("ascii")) for name, text in added.items()]
    return replace(request, headers=[*request.headers, *more])


def _aws(texts: Mapping[str, str], request: ApiRequest) -> dict[str, str]:
    """Return the headers of a signature over the host, the path, the query, the body's type and the body; without the
    body where the service does not need it."""
    try:
        from botocore import auth, awsrequest, credentials  # an extra, and slow to import
    except ImportError:
        missing = BrokerError(Code.APP_MISCONFIGURED, note='pip install "oauthbroker[aws]"')
    else:
        is_s3 = texts["service"] in _WITHOUT_PAYLOAD
        body = b"" if is_s3 else _whole(request)
        known = credentials.Credentials(texts["accessKeyId"], texts["secretAccessKey"], texts.get("sessionToken"))
        headers = {name: value for name, value in _headers(request).items() if _is_signed(name)}
        draft = awsrequest.AWSRequest(request.method, _url(request), headers=headers, data=body)
        signer: Any = (auth.S3SigV4Auth if is_s3 else auth.SigV4Auth)(known, texts["service"], texts["region"])
        if is_s3:
            signer.payload = lambda _: auth.UNSIGNED_PAYLOAD
        with unlogged("botocore"):  # at DEBUG it logs the text that is signed, with the session token
            signer.add_auth(draft)
        return {name: value for name, value in draft.headers.items() if name.lower() not in headers}
    raise missing


def _is_signed(name: str) -> bool:
    return name == "content-type" or name.startswith("x-amz-")


def _oauth1(texts: Mapping[str, str], request: ApiRequest) -> dict[str, str]:
    """Return the header of a signature over the method, the address and the fields of a form."""
    from authlib.oauth1 import ClientAuth  # needed only here

    ClientAuth.register_signature_method("HMAC-SHA256", _hmac_sha256)
    signer = ClientAuth(
        texts["consumerKey"],
        texts["consumerSecret"],
        texts["token"],
        texts["tokenSecret"],
        signature_method=texts.get("signatureMethod", "HMAC-SHA1"),
        realm=texts.get("realm") or None,
    )
    media_type = _headers(request).get("content-type", "")
    body = _whole(request).decode("utf-8", "replace") if media_type.startswith(_FORM) else ""
    _, headers, _ = signer.prepare(request.method, _url(request), {"Content-Type": media_type or "text/plain"}, body)
    return {"Authorization": headers["Authorization"]}


def _hmac_sha256(client: Any, request: Any) -> str:
    from authlib.oauth1.rfc5849.signature import escape, generate_signature_base_string

    text = generate_signature_base_string(request)
    key = f"{escape(client.client_secret or '')}&{escape(client.token_secret or '')}"
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


def _whole(request: ApiRequest) -> bytes:
    if not isinstance(request.body, bytes):
        raise BrokerError(Code.REQUEST_INVALID, note="a body that is signed comes as a whole, with its length")
    return request.body


def _headers(request: ApiRequest) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw, value in request.headers:
        name, text = spelled(raw).decode(), value.decode("latin-1")
        found[name] = f"{found[name]},{text}" if name in found else text
    return found


def _url(request: ApiRequest) -> str:
    own = request.port == (443 if request.scheme == "https" else 80)
    return f"{request.scheme}://{request.host}{'' if own else f':{request.port}'}{request.path}"
