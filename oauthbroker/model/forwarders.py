"""Where the events of agents go that are forwarded and not polled."""

from __future__ import annotations

import binascii
from base64 import b64decode

from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.secret import Secret

PREFIX = "whsec_"
KEY_BYTES = range(24, 65)  # Standard Webhooks, "signature scheme"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An address that takes events as Standard Webhooks. Each event is signed with all `secrets`: two while the
    receiver changes from one to the other."""

    url: str
    secrets: tuple[Secret, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Nats:
    """The servers of one NATS system (`tls://host:4222`), and the subject of a JetStream stream there."""

    servers: tuple[str, ...]
    subject: str
    user: str = ""
    password: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forwarder:
    """What `kind: Forwarder` says. `networks` are where its receiver may be beside the public addresses; `ca` (PEM) is
    trusted beside the system's certificates."""

    name: str
    agents: tuple[str, ...]
    to: Webhook | Nats
    networks: tuple[str, ...] = ()
    ca: str = ""


def webhook_key(secret: Secret) -> bytes | None:
    """Return the HMAC key (24 to 64 bytes) of a secret `whsec_<base64>`; None for another text."""
    prefix, encoded = secret.reveal()[: len(PREFIX)], secret.reveal()[len(PREFIX) :]
    try:
        key = b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if prefix == PREFIX and len(key) in KEY_BYTES else None
