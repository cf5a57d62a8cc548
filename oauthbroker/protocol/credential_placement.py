"""Put a static credential into a request to a provider's API. Signatures come last, over all that is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import parse_qsl, quote, urlencode

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.static_credential import StaticCredential, basic_of, unpacked
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.request_signatures import signed


def placed(credential: StaticCredential, packed: Secret, request: ApiRequest) -> ApiRequest:
    """Return the request with the credential. Raises `requestInvalid` for a query that names its parameter, and for a
    body that cannot be signed."""
    placement, values = credential.placement, unpacked(packed)
    texts = placement.filled(values)
    match placement.kind:
        case "headers":
            return _with_headers(request, texts)
        case "basic":
            return _with_headers(request, {"Authorization": f"Basic {basic_of(texts)}"})
        case "query":
            return replace(request, path=_with_query(request.path, texts))
        case "path":
            filled = {name: quote(value, safe=":") for name, value in values.items()}
            return replace(request, path=placement.filled(filled)["path"] + request.path)
        case _:
            return signed(placement.kind, texts, request)


def _with_headers(request: ApiRequest, headers: Mapping[str, str]) -> ApiRequest:
    more = [(name.encode("ascii"), text.encode("ascii")) for name, text in headers.items()]
    return replace(request, headers=[*request.headers, *more])


def _with_query(path: str, params: Mapping[str, str]) -> str:
    """Return the path with further parameters. A request that names one of them could override it at some servers."""
    place, mark, query = path.partition("?")
    said = {name.lower() for name, _ in parse_qsl(query, keep_blank_values=True)}
    if said & {name.lower() for name in params}:
        raise BrokerError(Code.REQUEST_INVALID, note="the query names the credential's parameter")
    own = urlencode(params, quote_via=quote)
    return f"{place}?{query}&{own}" if mark and query else f"{place}?{own}"
