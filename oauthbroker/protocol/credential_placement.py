"""Put a static credential into a request to a provider's API. Signatures come last, over all that is sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote, unquote_plus, urlencode

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.header_names import spelled_text
from oauthbroker.core.path_steps import climbs
from oauthbroker.model.static_credential import PATH_SAFE, OpenedCredential, basic_of
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.request_signatures import signed

_BETWEEN = re.compile("[&;]")  # `;` is one at some servers


def placed(opened: OpenedCredential, request: ApiRequest) -> ApiRequest:
    """Return the request with the credential. Raises `requestInvalid` for a query that names its parameter, for a path
    that could leave the credential's, and for a body that cannot be signed."""
    placement, texts = opened.credential.placement, opened.texts
    request = _with_headers(request, opened.beside) if opened.beside else request
    match placement.kind:
        case "headers":
            return _with_headers(request, texts)
        case "basic":
            return _with_headers(request, {"Authorization": f"Basic {basic_of(texts)}"})
        case "query":
            return replace(request, path=_with_query(request.path, texts))
        case "path":
            quoted = {name: quote(value, safe=PATH_SAFE) for name, value in opened.values.items()}
            path = placement.filled(quoted)["path"] + request.path
            if climbs(path):
                raise BrokerError(Code.REQUEST_INVALID, note="path")
            return replace(request, path=path)
        case _:
            return signed(placement.kind, texts, request)


def _with_headers(request: ApiRequest, headers: Mapping[str, str]) -> ApiRequest:
    more = [(name.encode("ascii"), text.encode("ascii")) for name, text in headers.items()]
    return replace(request, headers=[*request.headers, *more])


def _with_query(path: str, params: Mapping[str, str]) -> str:
    """Return the path with further parameters. A request that names one of them could override it at some servers."""
    place, mark, query = path.partition("?")
    said = {_read_by_servers(each.partition("=")[0]) for each in _BETWEEN.split(query)}
    if said & {_read_by_servers(name) for name in params}:
        raise BrokerError(Code.REQUEST_INVALID, note="the query names the credential's parameter")
    own = urlencode(params, quote_via=quote)
    return f"{place}?{query}&{own}" if mark and query else f"{place}?{own}"


def _read_by_servers(name: str) -> str:
    """Return the name of a parameter in one spelling: PHP reads `api.key[]` and ` api_key` as `api_key`."""
    return spelled_text(unquote_plus(name).partition("[")[0].partition("\0")[0].strip())
