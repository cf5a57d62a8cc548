"""The secrets of webhooks, sealed in the broker's store. During a change, the old one is taken beside the new one."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Final

from oauthbroker import BrokerError, Code

if TYPE_CHECKING:
    from oauthbroker import Broker

PLUGIN: Final = "flowtools"
_KEY: Final = "webhook/"
_LEAST, _MOST = 16, 512  # characters
_STANDARD: Final = "whsec_"


async def secrets_of(broker: Broker, name: str) -> list[str]:
    """Return the secrets of a name, the newest first; none if it has none."""
    found: list[str] | None = await broker.plugin_state(PLUGIN).get(_KEY + name)
    return found or []


async def set_secret(broker: Broker, name: str, text: str, *, keep: bool) -> None:
    """Store a secret; `keep` leaves the one before it valid. Raises `requestInvalid` for one that is too weak, and for
    that of another name: its webhooks would take each other's events."""
    secret = text.strip()
    if not (_LEAST <= len(secret) <= _MOST and secret.isascii() and secret.isprintable()) or not _is_whole(secret):
        note = f"a secret has {_LEAST} to {_MOST} printable ASCII characters; behind whsec_, it is base64"
        raise BrokerError(Code.REQUEST_INVALID, note=note)
    async for key, others in broker.plugin_state(PLUGIN).all():
        if key.startswith(_KEY) and key != _KEY + name and secret in others:
            raise BrokerError(Code.REQUEST_INVALID, note=f"{key.removeprefix(_KEY)} has this secret; use a new one")

    def newest(before: list[str] | None) -> list[str]:
        return [secret, *(each for each in (before or [])[:1] if keep and each != secret)]

    await broker.plugin_state(PLUGIN).change(_KEY + name, newest)


async def remove_secret(broker: Broker, name: str) -> bool:
    """Remove the secrets of a name. False if it has none."""
    return await broker.plugin_state(PLUGIN).remove(_KEY + name)


async def secret_names(broker: Broker) -> dict[str, int]:
    """Return each name with the number of its secrets."""
    found = {key: value async for key, value in broker.plugin_state(PLUGIN).all() if key.startswith(_KEY)}
    return {key.removeprefix(_KEY): len(found[key]) for key in sorted(found)}


def _is_whole(secret: str) -> bool:
    if not secret.startswith(_STANDARD):
        return True
    try:
        return bool(b64decode(secret.removeprefix(_STANDARD), validate=True))
    except ValueError:
        return False
