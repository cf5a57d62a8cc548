"""Where a broker is built. `open_broker` (`broker`) reads the configuration and opens the store (`storage`); `Parts` is
every part, in three layers (`foundation`, `flows`, `parts`); `web_apps` serves them; `running` starts and stops the
whole. `vault` opens the store without a broker."""

from oauthbroker.wiring.broker import open_broker
from oauthbroker.wiring.storage import KEY_ENV, init_store, key_origin, unlocked, upgrade_state, with_keys
from oauthbroker.wiring.vault import look_into, open_vault

__all__ = [
    "KEY_ENV",
    "init_store",
    "key_origin",
    "look_into",
    "open_broker",
    "open_vault",
    "unlocked",
    "upgrade_state",
    "with_keys",
]
