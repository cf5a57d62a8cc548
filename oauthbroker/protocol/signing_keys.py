"""Parse a provider's signing keys (RFC 7517): use the valid ones, skip the broken and unknown ones."""

from __future__ import annotations

from joserfc.jwk import ECKey, Key, OKPKey, RSAKey, import_key

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.strict_json import Json, decode_object
from oauthbroker.protocol.answers import refuse_if_busy
from oauthbroker.protocol.judging import judge
from oauthbroker.protocol.messages import ProviderResponse

MAX_KEYS = 100
_PUBLIC = {  # the members we read; a published private part is ignored
    "RSA": ("kty", "n", "e", "kid", "alg", "use"),
    "EC": ("kty", "crv", "x", "y", "kid", "alg", "use"),
    "OKP": ("kty", "crv", "x", "kid", "alg", "use"),
}


@judge(Code.APP_MISCONFIGURED)
def keys_response(answer: ProviderResponse) -> tuple[Key, ...]:
    """Return the public signing keys of a JWK Set, in its order. An entry that cannot be read is skipped.

    Raises `appMisconfigured` when there is no key set, `providerUnreachable` or `providerRateLimited` when a retry may
    help. The media type is not checked, because nothing depends on it.
    """
    refuse_if_busy(answer)
    entries = decode_object(answer.body, Code.APP_MISCONFIGURED).get("keys") if answer.status == 200 else None
    if not isinstance(entries, list):
        raise BrokerError(Code.APP_MISCONFIGURED, note="no key set at its address")
    keys = (_usable(entry) for entry in entries[:MAX_KEYS])
    return tuple(key for key in keys if key is not None)


def _usable(entry: Json) -> Key | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    kty = entry.get("kty")
    members = _PUBLIC.get(kty) if isinstance(kty, str) else None
    if members is None:  # symmetric keys too: they are not public
        return None
    try:
        key = import_key({name: entry[name] for name in members if name in entry})
        fits = isinstance(key, ECKey | OKPKey) or (isinstance(key, RSAKey) and key.raw_value.key_size >= 2048)
    except Exception:  # noqa: BLE001 - one broken entry must not hide the others
        return None
    return key if fits else None
