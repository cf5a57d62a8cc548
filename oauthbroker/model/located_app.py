"""The endpoints of one connection: an app whose hosts follow facts of the callback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from oauthbroker.model.apps import App
from oauthbroker.model.connection_facts import SLOTS_OF_FACTS


def located(app: App, known: Mapping[str, Any]) -> App:
    """Return the app with its endpoints at the hosts that a connection's facts name. It stays the same client."""
    if not app.facts.callback:
        return app
    urls = {slot: getattr(app.endpoints, slot) for slot in SLOTS_OF_FACTS}
    filled = {slot: app.facts.filled(url, known) for slot, url in urls.items() if "{" in url}
    there = replace(app, endpoints=replace(app.endpoints, **filled))
    object.__setattr__(there, "registration", app.registration)
    return there
