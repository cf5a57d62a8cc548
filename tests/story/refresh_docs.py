"""The table of docs/refresh-results.md, read from the page; what the scenarios that play its rows share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from oauthbroker.model.settings import Limits
from oauthbroker.model.token_results import AuthorizationRequired, Failed, Ready, TokenResult
from tests.kit.running_broker import Harness, UnwellStore, running, turn

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "refresh-results.md"
PAGE = DOCS.joinpath("refresh.md").read_text("utf-8") + RESULTS.read_text("utf-8")
HOUR, SHORT = 3600.0, 200.0  # a token's life, and the rest of it when the page says that it lives
LIMITS = Limits(provider_seconds=2)
Words = tuple[str, ...]
Scenario = Callable[[Harness], Awaitable[list[TokenResult]]]
SCENARIOS: dict[str, list[Scenario]] = {}
SHOWN: dict[str, tuple[str, str]] = {}  # what happened: what the tool sees, call by call; what the user sees
BEGIN, END = "<!-- rows: written by `make cases` -->\n", "<!-- end of rows -->\n"


def shows(happened: str, *, tool: str = "", user: str = "nothing") -> Callable[[Scenario], Scenario]:
    """The scenario plays a row of the page. The first one of a row names its other cells."""
    if tool:
        SHOWN[happened] = tool, user

    def keep(scenario: Scenario) -> Scenario:
        SCENARIOS.setdefault(happened, []).append(scenario)
        return scenario

    return keep


def written(page: str) -> str:
    """Return the page with the table of all rows."""
    rows = [("cause", "the tool sees", "the user sees"), ("---",) * 3, *((row, *cells) for row, cells in SHOWN.items())]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows).replace("| --- | --- | --- |", "|---|---|---|")
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{table}{END}{rest.partition(END)[2]}"


def told(row: str) -> list[Words]:
    """Return the words of each answer that a row shows."""
    return [tuple(re.findall(r"`(\w+)`", answer)) for answer in SHOWN[row][0].split("; then")]


def reported(answer: TokenResult) -> Words:
    """An answer in the words of the page."""
    match answer:
        case Ready():
            return ("ready", "degraded") if answer.degraded else ("ready",)
        case AuthorizationRequired():
            return ("authorization_required", answer.reason)
        case Failed():
            more = {"retryable": answer.retryable, "retryAfterSeconds": answer.retry_after_seconds is not None}
            return ("error", answer.code.value, *(word for word, said in more.items() if said))


# What the scenarios share


async def lives(harness: Harness) -> Ready:
    """A grant whose token lives, but for less than a call needs."""
    first = await harness.connected()
    harness.clock.advance(HOUR - SHORT)
    return first


async def ended(harness: Harness) -> Ready:
    first = await harness.connected()
    harness.clock.advance(HOUR)
    return first


def requests(harness: Harness) -> int:
    return harness.idp.count("refresh_token")


async def report(harness: Harness, rejected: Ready) -> TokenResult:
    return await harness.broker.oauth(turn()).report_rejected("mail", rejected.access_token)


async def during_a_refresh(harness: Harness, act: Callable[[], Awaitable[Any]]) -> TokenResult:
    """The answer of a call during whose refresh `act` happened."""
    hanging = harness.idp.script.refresh.hang(after_work=True)
    caller: asyncio.Task[TokenResult] = asyncio.create_task(harness.ask())
    await hanging.arrived()
    await act()
    hanging.release()
    return await caller


async def without_refresh_token(harness: Harness, *, left: float) -> Ready:
    harness.idp.change("client-mail", issue_refresh=False)
    first = await harness.connected()
    harness.clock.advance(HOUR - left)
    return first


def disturbed(harness: Harness, disturbance: str, *, times: int | None = 1) -> None:
    refresh = harness.idp.script.refresh
    match disturbance:
        case "slow":
            refresh.hang(times=times)
        case "gone":
            refresh.close_after_accept(reset=True, times=times)
        case "junk":
            refresh.answer(200, "<html>", times=times)
        case "client":
            refresh.refuse("invalid_client", 401, times=times)
        case "busy":
            refresh.busy("7", 429, times=times)
        case status:
            refresh.answer(int(status), times=times)


class LastingStore(UnwellStore):
    """Of two brokers, the one that leaves does not take it along."""

    async def close(self) -> None:
        pass


def another(harness: Harness, limits: Limits = LIMITS, **changes: Any) -> AbstractAsyncContextManager[Harness]:
    """Another broker on the same store, as another process would be; its apps may be changed in some ways."""
    apps = [replace(app, **changes) for app in harness.broker.bundle.apps.values()]
    return running(harness.idp, apps, clock=harness.clock, store=harness.store, limits=limits, background=False)


def disk_of(harness: Harness) -> UnwellStore:
    assert isinstance(harness.store, UnwellStore)
    return harness.store
