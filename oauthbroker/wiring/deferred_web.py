"""The web of a broker, built for the first one who takes it: a third of the start, and an embedded broker may serve no
page."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from oauthbroker.plugins.running_plugin import RunningPlugin
from oauthbroker.wiring.parts import Parts

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from oauthbroker.web.app import Web
    from oauthbroker.wiring.web_parts import WebParts


class DeferredWeb:
    """The ASGI applications of a broker."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @property
    def pages(self) -> Starlette:
        return self._web.pages

    @property
    def api(self) -> Starlette:
        return self._web.api

    @property
    def app(self) -> Starlette:
        return self._web.app

    def open(self, plugins: Mapping[str, RunningPlugin]) -> None:
        """Serve the routes and pages of the open plug-ins. Raises `configInvalid`."""
        if any(each.routes or each.pages for each in plugins.values()):
            self._apps.open(plugins)
            self.follow()

    def follow(self) -> None:
        """Follow a change of the configuration."""
        if "_web" in vars(self):
            self._web.follow()

    @cached_property
    def _apps(self) -> WebParts:
        from oauthbroker.wiring.web_parts import WebParts

        return WebParts(self._parts)

    @cached_property
    def _web(self) -> Web:
        return self._apps.web()
