"""A new configuration while the broker runs: read anew, with all its values, and taken as a whole or not at all."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from oauthbroker.config.problems import ConfigRefused, Problems, SourcePlace
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.apps import Bundle
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.settings import Settings

Source = str | Path | Bundle | None
Read = Callable[[Source], Awaitable[Bundle]]
WRITTEN_AS: Final = {
    "public_base_url": "spec.publicBaseUrl",
    "listen_host": "spec.listen.host",
    "listen_port": "spec.listen.port",
    "store_root": "spec.store.root",
    "key_file": "spec.keys.file",
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
    "confirm_url": "spec.confirmUrl",
    "admin_loopback": "spec.admin.loopback",
    "audit_on_failure": "spec.audit.onFailure",
    "audit_max_bytes": "spec.audit.maxBytes",
    "branding": "spec.pages",
}
"""What the Broker resource says is read at start only, because every room was built with it."""


class Reload:
    """Reads by `read`, one at a time. `follow` is told, at once, which apps have changed; `settle` ends what was begun
    under another configuration, and may take its time."""

    def __init__(
        self,
        in_use: CurrentConfig,
        read: Read,
        follow: Callable[[frozenset[str]], None],
        settle: Callable[[], Awaitable[object]],
        log: FilteringBoundLogger,
    ) -> None:
        self._in_use = in_use
        self._read = read
        self._follow = follow
        self._settle = settle
        self._log = log
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, config: Source = None) -> frozenset[str]:
        """Takes `config`, by default what the broker was opened with; the names of the apps that are new, gone or
        different. Raises ConfigRefused or a store code: then the configuration in use stays, and health is red."""
        async with self._one_at_a_time:
            try:
                bundle = await self._read(config)
                _check_settings(self._in_use.bundle.settings, bundle.settings, config)
            except BrokerError as error:
                refused = error.with_traceback(None)  # the frames in which values lay would come along
            except Exception as error:  # noqa: BLE001  (a reader that breaks must not take the broker along)
                refused = BrokerError(Code.CONFIG_INVALID, note=type(error).__name__)
            else:
                return await self._take(bundle)
            self._in_use.trouble = refused.code
            count = {"problems": len(refused.problems)} if isinstance(refused, ConfigRefused) else {}
            self._log.error("the new configuration is refused, the old one stays", code=refused.code.value, **count)
            raise refused

    async def _take(self, bundle: Bundle) -> frozenset[str]:
        changed = self._in_use.take(bundle)
        self._follow(changed)
        self._log.info("reloaded", apps=len(self._in_use.apps), changed=sorted(changed))
        try:
            await self._settle()
        except BrokerError as error:  # they end when somebody comes back with one: its configuration is not this one
            self._log.error("authorizations of before are still open", code=error.code.value, note=error.note)
        return changed


def _check_settings(before: Settings, after: Settings, config: Source) -> None:
    """Raises ConfigRefused, a problem for every setting that takes a restart."""
    problems, place = Problems(), SourcePlace(str(config) if isinstance(config, str | Path) else "")
    for each in dataclasses.fields(Settings):
        if each.compare and getattr(before, each.name) != getattr(after, each.name):
            what = "cannot change while the broker runs"
            problems.add(place, WRITTEN_AS[each.name], what, "restart it, or take the change back")
    problems.raise_if_any()
