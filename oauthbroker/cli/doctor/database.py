"""Report a database that cannot be asked, in place of the checks that need it."""

from __future__ import annotations

from collections.abc import Mapping

from oauthbroker.cli.doctor.place import guarded
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.diagnostics.findings import Finding
from oauthbroker.model.settings import Settings
from oauthbroker.wiring import check_database

_LEFT_OUT = (
    "Left out, because the database cannot be asked: keys, age, audit, apiKeys, work, grants, forecast and the secrets "
    "of the store."
)


async def database_away(refused: BrokerError, settings: Settings, env: Mapping[str, str]) -> list[Finding]:
    """Return what a refusal of the keys comes to where the database cannot be asked; nothing where it can."""

    async def reach() -> list[Finding]:
        check_database(settings, env)
        return []

    away = await guarded("database", reach)
    own = [] if refused.code is Code.STORE_UNAVAILABLE else [Finding("keys", "failure", str(refused))]
    return [*own, *away, Finding("database", "warning", _LEFT_OUT)] if away else []
