"""Build a broker. `open_broker` (`opening`) reads the configuration and opens the store (`storage`) with its key
(`key_sources`); `Parts` is every part, in three layers (`foundation`, `flows`, `parts`); `web_parts` serves them;
`running` starts and stops the whole. `offline_store` opens the store without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.core.lazy import lazily

if TYPE_CHECKING:
    from oauthbroker.config.key_file import with_keys
    from oauthbroker.wiring.key_sources import KEY_ENV, key_origin
    from oauthbroker.wiring.offline_store import look_into, open_vault
    from oauthbroker.wiring.opening import open_broker
    from oauthbroker.wiring.storage import check_database, init_store, migrate_store, store_url, unlocked

__all__ = [
    "KEY_ENV",
    "check_database",
    "init_store",
    "key_origin",
    "look_into",
    "migrate_store",
    "open_broker",
    "open_vault",
    "store_url",
    "unlocked",
    "with_keys",
]

if not TYPE_CHECKING:
    __getattr__ = lazily(
        __name__,
        {
            "config.key_file": {"with_keys"},
            "wiring.key_sources": {"KEY_ENV", "key_origin"},
            "wiring.offline_store": {"look_into", "open_vault"},
            "wiring.opening": {"open_broker"},
            "wiring.storage": {"check_database", "init_store", "migrate_store", "store_url", "unlocked"},
        },
    )
