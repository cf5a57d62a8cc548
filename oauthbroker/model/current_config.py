"""The configuration in use, for every folder that looks an app up.

`apps` is one object for the life of a broker and changes in place, between two steps of the event loop: a lookup gets
the newest app, and work under way finishes with the app that it began with.
"""

from __future__ import annotations

from collections.abc import Callable

from oauthbroker.core.errors import Code
from oauthbroker.model.apps import App
from oauthbroker.model.bundle import Bundle


class CurrentConfig:
    """`failure` is why the newest configuration is not the one in use; None while it is."""

    __slots__ = ("_learnt", "apps", "bundle", "failure")

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.apps: dict[str, App] = dict(bundle.apps)
        self.failure: Code | None = None
        self._learnt: dict[str, tuple[App, App]] = {}  # as configured, and as completed

    @property
    def digests(self) -> frozenset[tuple[str, str]]:
        """The names of the apps, each with what a running authorization relies on."""
        return frozenset((name, app.config_digest) for name, app in self.apps.items())

    def learn(self, name: str, complete: Callable[[App], App]) -> App | None:
        """Complete a configured app by the facts of its server, and return it. None for an unknown name."""
        configured = self.bundle.apps.get(name)
        if configured is None:
            return None
        completed = complete(configured)
        if self.apps.get(name) != completed:
            self.apps[name] = completed
        self._learnt[name] = configured, self.apps[name]
        return self.apps[name]

    def adopt(self, bundle: Bundle) -> frozenset[str]:
        """Replace the configuration. Return the names of the apps that are new, gone or different."""
        before = dict(self.apps)
        self.bundle, self.failure = bundle, None
        self.apps.clear()
        for name, app in bundle.apps.items():
            configured, completed = self._learnt.get(name, (None, app))
            self.apps[name] = completed if configured == app else app
        return frozenset(name for name in {*before, *self.apps} if before.get(name) != self.apps.get(name))
