"""What the doctor says of a handful of grants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from oauthbroker.diagnostics.findings import Finding
from oauthbroker.diagnostics.forecast import AppFacts, Forecast, Forecaster
from oauthbroker.diagnostics.grant_findings import GrantFindings
from oauthbroker.records.grant_view import GrantView


def forecast(grants: Iterable[GrantView], apps: Mapping[str, AppFacts], now: datetime) -> Forecast:
    """Forecast the ends of these grants."""
    forecaster = Forecaster(apps, now)
    for grant in grants:
        forecaster.add(grant)
    return forecaster.result()


def of_grants(grants: Iterable[GrantView], apps: Mapping[str, AppFacts]) -> list[Finding]:
    """Report the problems of these grants."""
    found = GrantFindings(apps)
    for grant in grants:
        found.add(grant)
    return found.findings()
