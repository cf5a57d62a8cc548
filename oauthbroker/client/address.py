"""The address of a broker's API: `https://host`, `http://` on this machine, or `unix:/path` of its socket.

A runtime sets the environment variables here for a tool's process, and an operator for a runtime's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import ConfigCauseError
from oauthbroker.core.secret import Secret
from oauthbroker.model.provider_networks import is_loopback

_TEXT = re.compile(r"[A-Za-z0-9._~:/@!$&'()*+,;=%\[\]-]{1,2048}")  # RFC 3986 without query and fragment
_FORMS = "the broker's address is https://host, http://127.0.0.1:port or unix:/path"
_BEARER = re.compile(r"[A-Za-z0-9._~+/=-]{1,8192}")  # RFC 6750 section 2.1


URL, TURN_TOKEN, KEY = "OAUTHBROKER_URL", "OAUTHBROKER_TURN_TOKEN", "OAUTHBROKER_API_KEY"
LOCALE = "OAUTHBROKER_LOCALE"  # the turn's


class ClientSettingError(ConfigCauseError, ValueError):
    """`configInvalid` for an address, token, key or option that no client can use. Its text does not quote it."""


@dataclass(frozen=True, slots=True)
class Address:
    """An address. `base` has no trailing slash. With `socket`, its host is used for the Host header only."""

    base: str
    socket: str | None = None


def parse_address(url: str, *, plain_http: bool = False) -> Address:
    """Parse an address. Raises ClientSettingError. `plain_http` is a weakening: tokens in clear to another machine."""
    if not isinstance(url, str) or not _TEXT.fullmatch(_trimmed("the broker's address", url)):
        raise ClientSettingError(_FORMS)
    if url.startswith("unix:"):
        path = url.removeprefix("unix:").removeprefix("//")
        if not path.startswith("/"):
            raise ClientSettingError("the path of a Unix socket is absolute: unix:/run/oauthbroker.sock")
        return Address("http://localhost", path)
    parts = _split(url)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise ClientSettingError(_FORMS)
    if parts.scheme == "http" and not plain_http and not is_loopback(parts.hostname):
        why = "http:// to another machine shows tokens to the network"
        raise ClientSettingError(f"{why}: use https, or say plain_http=True")
    if parts.path.rstrip("/").endswith("/v1"):
        raise ClientSettingError("leave /v1 out of the broker's address: the client adds it")
    return Address(url.rstrip("/"))


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if its host or port is none."""
    with suppress(ValueError):
        parts = urlsplit(url)
        parts.port  # noqa: B018  (raises for a port that is none)
        return parts
    return None


def bearer(text: str | Secret) -> Secret:
    """Check a token or key for use in a header. Raises ClientSettingError."""
    if not isinstance(text, (str, Secret)):
        raise ClientSettingError(f"the token or key is a text, and this is {type(text).__name__}")
    secret = text if isinstance(text, Secret) else Secret(text)
    if not _BEARER.fullmatch(_trimmed("the token or key", secret.reveal())):
        raise ClientSettingError("this is no token or key of a broker")
    return secret


def needed(name: str, env: Mapping[str, str] | None) -> str:
    """Return the variable. Raises ClientSettingError, which names it, if it is missing or has white space around it."""
    value = given(name, env)
    if value is None:
        raise ClientSettingError(f"{name} is not set: set it where this process starts")
    return value


def given(name: str, env: Mapping[str, str] | None) -> str | None:
    """Return the variable; None if it is unset or empty. Raises ClientSettingError as `needed` does."""
    value = (os.environ if env is None else env).get(name)  # noqa: TID251  (who calls from_env asks for this)
    return _trimmed(name, value) if value else None


def _trimmed(name: str, text: str) -> str:
    """Return the text. Raises ClientSettingError for white space around it, as files leave it."""
    if text != text.strip():
        raise ClientSettingError(f"{name} begins or ends with white space, such as a line break: remove it")
    return text
