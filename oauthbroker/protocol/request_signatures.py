"""Sign requests to an API: AWS Signature Version 4 by botocore, OAuth 1.0a as RFC 5849 has it."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, quote

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.static_credential import Placing
from oauthbroker.observability.library_log import unlogged
from oauthbroker.protocol.network.api_request import ApiRequest

_WITHOUT_PAYLOAD = frozenset({"s3", "s3express", "s3-object-lambda", "s3-outposts"})  # services that do not need it
_PRESIGNED = ("x-amz-", "awsaccesskeyid")  # in a query
_FORM = "application/x-www-form-urlencoded"
_DIGESTS = {"HMAC-SHA1": "sha1", "HMAC-SHA256": "sha256"}


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
        missing = BrokerError(Code.APP_MISCONFIGURED, note='signatures of AWS need `pip install "oauthbroker[aws]"`')
    else:
        is_s3 = texts["service"] in _WITHOUT_PAYLOAD
        body = b"" if is_s3 else _whole(request)
        known = credentials.Credentials(texts["accessKeyId"], texts["secretAccessKey"], texts.get("sessionToken"))
        headers = {name: value for name, value in _headers(request).items() if _is_signed(name)}
        url, _, query = _url(request).partition("?")
        said = parse_qsl(query.replace(";", "%3B"), keep_blank_values=True)
        _refuse_own(name for name, _ in said if name.lower().startswith(_PRESIGNED))
        canonical = "&".join(f"{_escaped(name)}={_escaped(value)}" for name, value in said)
        draft = awsrequest.AWSRequest(request.method, f"{url}?{canonical}", headers=headers, data=body)
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
    from authlib.oauth1.rfc5849.client_auth import generate_nonce, generate_timestamp  # needed only here

    method = texts.get("signatureMethod", "HMAC-SHA1")
    own = {
        "oauth_consumer_key": texts["consumerKey"],
        "oauth_nonce": generate_nonce(),
        "oauth_signature_method": method,
        "oauth_timestamp": generate_timestamp(),
        "oauth_token": texts["token"],
        "oauth_version": "1.0",
    }
    url, _, query = _url(request).partition("?")
    said = parse_qsl(query, keep_blank_values=True)
    if _headers(request).get("content-type", "").lower().startswith(_FORM):
        said += parse_qsl(_whole(request).decode("utf-8", "replace"), keep_blank_values=True)
    _refuse_own(name for name, _ in said if name.lower().startswith("oauth_"))
    pairs = sorted((_escaped(name), _escaped(value)) for name, value in (*said, *own.items()))
    params = "&".join(f"{name}={value}" for name, value in pairs)
    base = "&".join(map(_escaped, (request.method.upper(), url, params)))  # RFC 5849 section 3.4.1
    key = f"{_escaped(texts['consumerSecret'])}&{_escaped(texts['tokenSecret'])}"
    digest = hmac.new(key.encode(), base.encode(), _DIGESTS[method]).digest()
    own["oauth_signature"] = base64.b64encode(digest).decode()
    realm = [f'realm="{_escaped(texts["realm"])}"'] if texts.get("realm") else []
    return {"Authorization": "OAuth " + ", ".join([*realm, *(f'{name}="{_escaped(own[name])}"' for name in own)])}


def _escaped(text: str) -> str:
    return quote(text, safe="~")  # RFC 5849 section 3.6, and so does AWS


def _refuse_own(names: Iterable[str]) -> None:
    """Raise `requestInvalid` for parameters of a signature of the caller's own."""
    if any(True for _ in names):
        raise BrokerError(Code.REQUEST_INVALID, note="the request has a signature of its own")


def _whole(request: ApiRequest) -> bytes:
    if not isinstance(request.body, bytes):
        raise BrokerError(Code.REQUEST_INVALID, note="a body that is signed comes as a whole, with its length")
    return request.body


def _headers(request: ApiRequest) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw, value in request.headers:
        name, text = raw.decode("latin-1").lower(), value.decode("latin-1")
        found[name] = f"{found[name]},{text}" if name in found else text
    return found


def _url(request: ApiRequest) -> str:
    own = request.port == (443 if request.scheme == "https" else 80)
    return f"{request.scheme}://{request.host}{'' if own else f':{request.port}'}{request.path}"
