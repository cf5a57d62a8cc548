"""Key providers of other packages, by their entry points. `testing.key_provider_contract` tests them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any, Final

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.store.keys.key_encryption_keys import KeyProvider

GROUP: Final = "oauthbroker.key_providers"


def installed_provider(name: str, settings: Mapping[str, Any]) -> KeyProvider:
    """Return the provider of that name, made with the settings of the configuration. The entry point is a callable that
    takes them. Raises `keyUnknown` with a note that names the provider, and what the callable raises of ours."""
    found = metadata.entry_points(group=GROUP, name=name)
    if not found:
        raise _unusable(name, f"no installed package has this entry point in {GROUP}")
    if len(found) > 1:
        raise _unusable(name, "several installed packages have it")
    failed: BrokerError
    try:
        provider = next(iter(found)).load()(settings)
    except BrokerError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  (code of another package: its text may hold a secret)
        failed = _unusable(name, type(error).__name__)
    else:
        if all(callable(getattr(provider, each, None)) for each in ("id", "wrap", "unwrap", "health")):
            return provider  # type: ignore[no-any-return]  # as far as can be seen here
        failed = _unusable(name, "it made no key provider")
    raise failed


def _unusable(name: str, why: str) -> BrokerError:
    return BrokerError(Code.KEY_UNKNOWN, note=f"the key provider {name}: {why}")
