"""Key providers of other packages, by their entry points. `testing.key_provider_contract` tests them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, Final, TypeVar

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.foreign_code import ForeignFault, foreign_code
from oauthbroker.store.keys.key_encryption_keys import KeyProvider

GROUP: Final = "oauthbroker.key_providers"
MOST_ID, MOST_WRAPPED = 1024, 64 * 1024
T = TypeVar("T")


class _InstalledProvider:
    """A provider of another package. Each fault of its own is `keyUnknown`, with a note that names it."""

    def __init__(self, name: str, provider: KeyProvider) -> None:
        self._name, self._provider = name, provider

    def __repr__(self) -> str:
        return f"the key provider {self._name}"

    def id(self) -> str:
        found = self._asked("id", self._provider.id, str)
        if found.isprintable() and 0 < len(found) <= MOST_ID:
            return found
        raise _unusable(self._name, "`id` returned no short, printable text")

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        wrapped = self._asked("wrap", lambda: self._provider.wrap(secret, context), bytes)
        if len(wrapped) <= MOST_WRAPPED:
            return wrapped
        raise _unusable(self._name, f"`wrap` returned more than {MOST_WRAPPED} bytes")

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        return self._asked("unwrap", lambda: self._provider.unwrap(wrapped, context), bytes)

    def health(self) -> None:
        self._asked("health", self._provider.health, object)

    def _asked(self, method: str, ask: Callable[[], object], kind: type[T]) -> T:
        """Return what a method returns. Damage that it meets is damage of its own copy, and not of the keyring."""
        whose = f"{self!r}, {method}"
        try:
            with foreign_code(whose):
                found = ask()
        except ForeignFault as fault:
            failed = BrokerError(Code.KEY_UNKNOWN, note=str(fault))
        except BrokerError as error:
            failed = error
            failed.note = f"{whose}: {error.note or error.code.value}"
            if error.code is Code.RECORD_CORRUPT:
                failed = BrokerError(Code.KEY_MISMATCH, note=f"{whose}: it does not open its copy of the keyring's key")
        else:
            if isinstance(found, kind):
                return found
            failed = _unusable(self._name, f"`{method}` returned an object of the type {type(found).__name__}")
        raise failed


def installed_provider(name: str, settings: Mapping[str, Any]) -> KeyProvider:
    """Return the provider of that name, made with the settings of the configuration. The entry point is a callable that
    takes them. Raises `keyUnknown` with a note that names the provider, and what the callable raises of ours."""
    found = metadata.entry_points(group=GROUP, name=name)
    if not found:
        raise _unusable(name, f"no installed package has this entry point in {GROUP}")
    if len(found) > 1:
        packages = sorted(each.dist.name if each.dist is not None else "a package" for each in found)
        raise _unusable(name, f"the packages {' and '.join(packages)} both have it")
    try:
        with foreign_code(f"the key provider {name}"):
            provider = next(iter(found)).load()(settings)
            is_one = all(callable(getattr(provider, each, None)) for each in ("id", "wrap", "unwrap", "health"))
    except ForeignFault as fault:
        failed = str(fault)
    else:
        if is_one:
            return _InstalledProvider(name, provider)
        raise _unusable(name, "it made no key provider")
    raise BrokerError(Code.KEY_UNKNOWN, note=failed)


def _unusable(name: str, why: str) -> BrokerError:
    return BrokerError(Code.KEY_UNKNOWN, note=f"the key provider {name}: {why}")
