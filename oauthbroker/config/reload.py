"""Reload the configuration while the broker runs: with all its values, as a whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from oauthbroker.config.problems.problems import ConfigInvalidError, Problems, SourcePlace
from oauthbroker.core.dataclasses import dataclass, field, fields
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.opened_here import OpenedHere
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.settings import Settings
from oauthbroker.observability.logging import Log

Source = str | Path | Bundle | None
MOST_LOGGED: Final = 20
Read = Callable[[Source], Awaitable[Bundle]]
WRITTEN_AS: Final = {
    "public_base_url": "spec.publicBaseUrl",
    "listen_host": "spec.listen.host",
    "listen_port": "spec.listen.port",
    "store_root": "spec.store.root",
    "store_url_env": "spec.store.url",
    "store_direct_url_env": "spec.store.directUrl",
    "store_consistency": "spec.store.consistency",
    "key_file": "spec.keys.file",
    "key_service": "spec.keys",
    "other_keys": "spec.keys.also",
    "vault": "spec.vault",
    "locale": "spec.locale",
    "limits": "spec.limits",
    "weaken": "spec.weaken",
    "expired_events": "spec.events.expired",
    "api_host": "spec.api.listen.host",
    "api_port": "spec.api.listen.port",
    "api_socket": "spec.api.socket",
    "allowed_hosts": "spec.allowedHosts",
    "trusted_proxies": "spec.trustedProxies",
    "provider_networks": "spec.providerNetworks",
    "outgoing_proxy": "spec.outgoingProxy",
    "admin_loopback": "spec.admin.loopback",
    "audit_on_failure": "spec.audit.onFailure",
    "audit_max_bytes": "spec.audit.maxBytes",
    "branding": "spec.pages",
    "plugins": "spec.plugins",
}
"""The Broker resource is read at start only, because every part was built with it."""


@dataclass(slots=True, kw_only=True)
class Reload:
    """Reads by `read`, one at a time. `follow` gets the apps that have changed, at once; `settle` ends authorizations
    of the apps that this process had and has no longer, and may take its time. Those of an app that only another host
    has, such as a new one, are left alone."""

    current: CurrentConfig
    read: Read
    follow: Callable[[frozenset[str]], None]
    settle: Callable[[frozenset[tuple[str, str]]], Awaitable[object]]
    log: Log
    opened_here: OpenedHere
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    _not_read: tuple[Code, str | None] | None = None

    async def __call__(self, config: Source = None) -> frozenset[str]:
        """Take `config`, by default the configuration that the broker was opened with. Return the names of the apps
        that are new, removed or different. Raises ConfigInvalidError or a store code: then the configuration in use
        stays, and health is red with `configInvalid`."""
        self.opened_here.check_open()
        async with self._one_at_a_time:
            try:
                bundle = await self.read(config)
                _check_settings(self.current.bundle.settings, bundle.settings, config)
            except BrokerError as error:
                refused = error.with_traceback(None)  # its frames hold values
            except Exception as error:  # noqa: BLE001  (a reader that breaks must not take the broker along)
                refused = BrokerError(Code.CONFIG_INVALID, note=type(error).__name__)
            else:
                return await self._take(bundle)
            self.current.failure = Code.CONFIG_INVALID  # a store code here would say that tokens are not stored
            self._note(refused)
            raise refused

    def _note(self, refused: BrokerError) -> None:
        """Log why the configuration is not in use. A try that found the same as the one before says nothing."""
        note = None if isinstance(refused, ConfigInvalidError) else refused.note
        if refused.retryable and (refused.code, note) == self._not_read:
            return
        self._not_read = (refused.code, note) if refused.retryable else None
        if refused.retryable:
            event = "the new configuration cannot be read now, the old one stays"
            self.log.warning(event, code=refused.code.value, note=note)
            return
        fields: dict[str, object] = {"note": note}
        if isinstance(refused, ConfigInvalidError):  # each says where and what, and no value
            fields = {"problems": len(refused.problems), "details": [str(it) for it in refused.problems[:MOST_LOGGED]]}
        self.log.error("the new configuration is refused, the old one stays", code=refused.code.value, **fields)

    async def _take(self, bundle: Bundle) -> frozenset[str]:
        had = self.current.digests
        changed, self._not_read = self.current.adopt(bundle), None
        self.follow(changed)
        self.log.info("reloaded", apps=len(self.current.apps), changed=sorted(changed))
        try:
            await self.settle(had - self.current.digests)
        except BrokerError as error:  # the next pass of the upkeep ends them, and until then none is served here
            say = self.log.info if error.code is Code.STORE_LOCKED else self.log.error
            say("authorizations of before are still open", code=error.code.value, note=error.note)
        return changed


def _check_settings(before: Settings, after: Settings, config: Source) -> None:
    """Raises ConfigInvalidError, a problem for every setting that takes a restart."""
    problems, place = Problems(), SourcePlace(str(config) if isinstance(config, str | Path) else "")
    for each in fields(Settings):
        if each.compare and getattr(before, each.name) != getattr(after, each.name):
            what = "cannot change while the broker runs"
            problems.add(place, WRITTEN_AS[each.name], what, "restart it, or take the change back")
    problems.raise_if_any()
