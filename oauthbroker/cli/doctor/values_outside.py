"""Check that each value in a service outside can be read, one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from oauthbroker.core.errors import BrokerError
from oauthbroker.diagnostics.findings import Finding
from oauthbroker.key_services.outside_values import OutsideValues
from oauthbroker.model.apps import App
from oauthbroker.model.settings import Settings


async def values_outside(settings: Settings, apps: Iterable[App]) -> list[Finding]:
    services = OutsideValues(settings.vault, settings.outgoing_proxy)
    found = list[Finding]()
    credentials = [(app.name, app.credential) for app in apps if app.credential is not None]
    for app, credential in credentials:
        for name, place in credential.outside.items():
            try:
                value = (await asyncio.to_thread(services.read, [place]))[place].reveal().strip()
            except BrokerError as error:
                hint = "Requests use the last value for a day, or fail."
                found.append(Finding("secrets", "failure", f"Not readable: {error.note}.", about=app, hint=hint))
                continue
            if any(each.problem(value) for each in credential.fields if each.name == name):
                found.append(Finding("secrets", "failure", f"{place} does not fit the field {name}.", about=app))
            else:
                found.append(Finding("secrets", "ok", f"{place} can be read.", about=app))
    return found
