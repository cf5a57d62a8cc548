"""Where everything is put together, from below: `storage` and `vault`, `flows`, `rooms`, `faces`; `broker` builds the
whole and `house` keeps it going. Nobody else knows how parts fit."""

from oauthbroker.wiring.broker import open_broker
from oauthbroker.wiring.storage import KEY_ENV, init_store, key_origin, unlocked, with_keys
from oauthbroker.wiring.vault import look_into, open_vault

__all__ = ["KEY_ENV", "init_store", "key_origin", "look_into", "open_broker", "open_vault", "unlocked", "with_keys"]
