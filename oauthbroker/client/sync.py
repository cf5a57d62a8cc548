"""The tool's client for code without `await`. It loads neither asyncio nor, for a Unix socket, TLS."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Self

from oauthbroker.client.address import bearer
from oauthbroker.client.sync_base import SyncClient, blocking_wire, waits
from oauthbroker.client.tool import DEFAULT, OAuth, Options
from oauthbroker.core.secret import Secret
from oauthbroker.model.turn_token import AllowedApps


class SyncOAuth(SyncClient[OAuth]):
    """`OAuth` without `await`. `with` it, or `close()` it."""

    __slots__ = ()

    def __init__(self, url: str, turn_token: str | Secret, options: Options = DEFAULT) -> None:
        wire = blocking_wire(url, options)
        self._async = OAuth._on(wire, bearer(turn_token), options.locale)  # noqa: SLF001

    @classmethod
    def from_env(cls, options: Options = DEFAULT, env: Mapping[str, str] | None = None) -> Self:
        """Call `OAuth.from_env`."""
        return cls(*Options.of_turn(options, env))

    get_access_token = waits(OAuth.get_access_token)
    getAccessToken = waits(OAuth.getAccessToken)
    report_rejected = waits(OAuth.report_rejected)
    fetch = waits(OAuth.fetch)
    pending = waits(OAuth.pending)
    relay_code = waits(OAuth.relay_code)
    apps = waits(OAuth.apps)

    def narrow(
        self, *, tool: str | None = None, apps: AllowedApps | None = None, expires_at: datetime | None = None
    ) -> Self:
        """Call `OAuth.narrow`: sends no request."""
        return self._of(self._async.narrow(tool=tool, apps=apps, expires_at=expires_at))

    @property
    def turn_token(self) -> Secret:
        """As `OAuth.turn_token`."""
        return self._async.turn_token
