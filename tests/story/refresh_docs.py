"""The table of docs/refresh.md, read from the page; what the scenarios that play its rows share."""

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
PAGE = DOCS.joinpath("refresh.md").read_text("utf-8")
HOUR, SHORT = 3600.0, 200.0  # a token's life, and the rest of it when the page says that it lives
LIMITS = Limits(provider_seconds=2)
Words = tuple[str, ...]
Scenario = Callable[[Harness], Awaitable[list[TokenResult]]]
SCENARIOS: dict[str, list[Scenario]] = {}


def shows(row: str) -> Callable[[Scenario], Scenario]:
    """The scenario plays this row of the page; it returns the cells of the row, in their order."""

    def keep(scenario: Scenario) -> Scenario:
        SCENARIOS.setdefault(row, []).append(scenario)
        return scenario

    return keep


def rows() -> dict[str, tuple[list[Words], str]]:
    """what happened -> (what the tool is told, call by call; what the person sees)"""
    section = PAGE.partition("## What a tool and a user see")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {happened: ([*map(words_of, tool.split("; then"))], person) for happened, tool, person in cells[2:]}


def words_of(cell: str) -> Words:
    return tuple(re.findall(r"`(\w+)`", cell))


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
