"""Read an app's facts from the query of a callback whose state and browser were checked, and check its signature."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from hashlib import sha256

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import App
from oauthbroker.protocol.callback_checks import CallbackParams, ValidCallback, decoded

_HMAC = "hmac"


def callback_facts(app: App, valid: ValidCallback) -> dict[str, str]:
    """Return the app's facts, each as it came or its default. Raises `callbackFactInvalid` with the name of one that is
    missing, occurs twice, or is none of the declared values."""
    if valid.facts is not None:
        return dict(valid.facts)
    found: dict[str, str] = {}
    for name, value in _pairs(valid.query) if app.facts.callback else ():
        fact = app.facts.callback.get(name or "")
        if name is None or fact is None:
            continue
        if name in found or not fact.admits(value):
            raise BrokerError(Code.CALLBACK_FACT_INVALID, note=f"the callback's {name}", fact=name)
        found[name] = value or ""
    for name, fact in app.facts.callback.items():
        if name not in found and not fact.default:
            raise BrokerError(Code.CALLBACK_FACT_INVALID, note=f"the callback has no {name}", fact=name)
        found.setdefault(name, fact.default)
    return found


def check_signature(app: App, params: CallbackParams) -> None:
    """Check the HMAC-SHA256 of the query where the app declares one: over the decoded pairs in their order of names,
    without `hmac`, with a client secret. An error response may lack it, since it brings no code. Raises
    `callbackMalformed`; the session stays as it is."""
    if not app.facts.hmac:
        return
    pairs = dict[str, str]()
    for name, value in _pairs(params.query):
        if name is None or value is None or name in pairs:
            raise BrokerError(Code.CALLBACK_MALFORMED, note="a signed query that cannot be read in one way")
        pairs[name] = value
    came = pairs.pop(_HMAC, "")
    if not came and params.code is None:
        return
    text = "&".join(sorted(f"{_plain(name).replace('=', '%3D')}={_plain(value)}" for name, value in pairs.items()))
    wanted = [hmac.new(each.reveal().encode(), text.encode(), sha256).hexdigest() for each in app.client.secrets]
    if not any(hmac.compare_digest(each.encode(), came.encode()) for each in wanted):
        raise BrokerError(Code.CALLBACK_MALFORMED, note="the callback's hmac")


def _plain(text: str) -> str:
    """Escape the delimiters, so that no two queries have one text."""
    return text.replace("%", "%25").replace("&", "%26")


def _pairs(query: bytes) -> Iterator[tuple[str | None, str | None]]:
    """Yield the decoded pairs. None stands for text that is no printable UTF-8."""
    for pair in filter(None, query.split(b"&")):
        name, _, value = pair.partition(b"=")
        yield decoded(name), decoded(value)
