"""The table of docs/refresh.md, read from the page; what the scenarios that play its rows share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from oauthbroker.model.results import AuthorizationRequired, Failed, Ready, TokenResult
from oauthbroker.model.settings import Limits
from tests.kit.running_broker import House, UnwellStore, running, turn

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS.joinpath("refresh.md").read_text("utf-8")
HOUR, SHORT = 3600.0, 200.0  # a token's life, and what is left of it when the page says that it lives
LIMITS = Limits(provider_seconds=2)
Words = tuple[str, ...]
Scenario = Callable[[House], Awaitable[list[TokenResult]]]
SCENARIOS: dict[str, list[Scenario]] = {}


def shows(row: str) -> Callable[[Scenario], Scenario]:
    """The scenario plays this row of the page; what it returns is what the row says, in its order."""

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


def told(answer: TokenResult) -> Words:
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


async def lives(house: House) -> Ready:
    """A grant whose token lives, but for less than a call needs."""
    first = await house.connected()
    house.clock.advance(HOUR - SHORT)
    return first


async def ended(house: House) -> Ready:
    first = await house.connected()
    house.clock.advance(HOUR)
    return first


def requests(house: House) -> int:
    return house.idp.count("refresh_token")


async def report(house: House, rejected: Ready) -> TokenResult:
    return await house.broker.oauth(turn()).report_rejected("mail", rejected.access_token)


async def during_a_refresh(house: House, act: Callable[[], Awaitable[Any]]) -> TokenResult:
    """What a call is told while whose renewal was under way `act` happened."""
    hanging = house.idp.script.refresh.hang(after_work=True)
    caller: asyncio.Task[TokenResult] = asyncio.create_task(house.ask())
    await hanging.arrived()
    await act()
    hanging.release()
    return await caller


async def without_refresh_token(house: House, *, left: float) -> Ready:
    house.idp.change("client-mail", issue_refresh=False)
    first = await house.connected()
    house.clock.advance(HOUR - left)
    return first


def troubled(house: House, trouble: str, *, times: int | None = 1) -> None:
    refresh = house.idp.script.refresh
    match trouble:
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


def another(house: House, limits: Limits = LIMITS, **changes: Any) -> AbstractAsyncContextManager[House]:
    """Another broker on the same store, as another process would be; its apps may be changed in some ways."""
    apps = [replace(app, **changes) for app in house.broker.bundle.apps.values()]
    return running(house.idp, apps, clock=house.clock, store=house.store, limits=limits, background=False)


def disk_of(house: House) -> UnwellStore:
    assert isinstance(house.store, UnwellStore)
    return house.store
