"""`oauthbroker status`: your own connections, and whether they work."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime
from typing import Any

import typer

from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.options import AsJson
from oauthbroker.cli.output.tables import columns
from oauthbroker.config import ConfigInvalidError
from oauthbroker.core.clock import SystemClock, printed
from oauthbroker.personal.command_lines import command_for, logout_of, named
from oauthbroker.personal.key_place import place_of_key
from oauthbroker.personal.local_broker import open_local
from oauthbroker.personal.logins import Connection, connections, known_as
from oauthbroker.personal.places import Places
from oauthbroker.web.html.readable_times import relative_time
from oauthbroker.web.words import CONNECTIONS

app = typer.Typer(add_completion=False)
NONE = "Nothing is connected yet. Begin with: oauthbroker login github (or another of `oauthbroker providers list`)"


@app.command("status")
def status_command(as_json: AsJson = False) -> None:
    """List your own connections.

    Each line has the words that name it, the account, whether it works as far as the store knows, and its last use.
    No provider is asked. A line on stderr says where the key of the store is.
    """
    places = Places.of_user()
    places.check()
    found = asyncio.run(_found(places)) if places.names() else []
    if as_json:
        answer([_document(name, each) for name, each in found])
    elif found:
        apps = [name for name, _ in found]
        rows = [_row(name, each, alone=apps.count(name) == 1) for name, each in found]
        typer.echo(columns(("",) * 4, rows).partition("\n")[2])
        typer.echo(place_of_key(places), err=True)
    else:
        typer.echo(NONE, err=True)


async def _found(places: Places) -> list[tuple[str, Connection | None]]:
    """Return each app with each of its connections, or with None. Where a value of an app is missing, the store alone
    says how they are."""
    try:
        return await _rows(places, places.names())
    except ConfigInvalidError:
        pass
    return await _rows(places, ())


async def _rows(places: Places, only: Collection[str]) -> list[tuple[str, Connection | None]]:
    found = list[tuple[str, Connection | None]]()
    async with open_local(places, only=only) as running:
        for name in places.names():
            several = [each async for each in connections(running, name)]
            several.sort(key=lambda each: each.view.account)
            found += [(name, each) for each in several] or [(name, None)]
    return found


def _row(name: str, found: Connection | None, *, alone: bool) -> tuple[str, str, str, str]:
    if found is None:
        return name, "-", command_for("login", name), ""
    account, who = found.view.account, known_as(found.view) or "-"
    if found.state == "ended here":
        return named(name, account), who, found.state, logout_of(name, account, alone=alone)
    if found.state != "works":
        return named(name, account), who, found.state, command_for("login", name, account)
    used = f"used {_ago(found.used_at)}" if found.used_at is not None else "not used yet"
    return named(name, account), who, found.state, used


def _ago(moment: datetime) -> str:
    return relative_time(moment, SystemClock().now(), CONNECTIONS["en"])


def _document(name: str, found: Connection | None) -> dict[str, Any]:
    if found is None:
        return {"app": name, "state": "needs login"}
    used = {} if found.used_at is None else {"usedAt": printed(found.used_at)}
    account = {"account": found.view.account} if found.view.account else {}
    return {"app": name, **account, "identity": found.view.identity, "state": found.state, **used}
