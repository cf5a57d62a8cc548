"""`oauthbroker api-keys`: manage the keys of the HTTP API. A key is printed once, when it is made."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oauthbroker.cli.answers import answer
from oauthbroker.cli.options import CONFIG, AsJson, ConfigPath, Yes
from oauthbroker.cli.refusals import confirm
from oauthbroker.cli.text import shown, table
from oauthbroker.core.refused import Refused

if TYPE_CHECKING:
    from datetime import datetime

    from oauthbroker.core.secret import Secret
    from oauthbroker.model.settings import Role
    from oauthbroker.operations.grants import Vault
    from oauthbroker.records.api_key import ApiKey

SHORTEST_ID = 6
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d{1,9})([smhd])")


def _seconds(text: str) -> int:
    """Return the seconds of `90d`, `24h`, `30m` or `45s`. Raises BadParameter for any other text."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter("Write a number and its unit: 90d, 24h, 30m or 45s.")
    return int(found[1]) * _UNITS[found[2]]


app = typer.Typer(help="Keys for the API: create, list, rotate, remove.", no_args_is_help=True, add_completion=False)


class RoleWord(StrEnum):
    RUNTIME = "runtime"
    OPERATOR = "operator"


Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is: letters, digits, '.', '_' and '-'.")]
KeyId = Annotated[str, typer.Argument(metavar="KEY_ID", help="As `api-keys list` shows it; its beginning is enough.")]
Roles = Annotated[list[RoleWord] | None, typer.Option("--role", help="A role of the key; repeat the option for both.")]
Expires = Annotated[
    int | None,
    typer.Option("--expires", metavar="TIME", parser=_seconds, help="How long it lives: 90d, 24h, 30m. Else for ever."),
]
NewExpires = Annotated[
    int | None,
    typer.Option(metavar="TIME", parser=_seconds, help="How long the new one lives; else as long as the old one did."),
]
Overlap = Annotated[
    int, typer.Option("--overlap", metavar="TIME", parser=_seconds, help="How long the old ones still work: 24h, 0s.")
]


@app.command("create")
def create_command(
    name: Name, roles: Roles = None, expires: Expires = None, as_json: AsJson = False, config: ConfigPath = CONFIG
) -> None:
    """Make a key and print it once.

    stdout holds only the key. The store keeps a hash, so the key cannot be printed again.
    """
    words: list[Role] = [role.value for role in roles or [RoleWord.RUNTIME]]

    async def make() -> tuple[ApiKey, Secret]:
        async with _vault(config) as vault:
            return await vault.api_keys.create(name, words, lives_seconds=expires)

    _hand_over(*asyncio.run(make()), as_json=as_json)


@app.command("list")
def list_command(as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """List the keys, expired ones too."""
    from oauthbroker.core.clock import SystemClock

    now, found = SystemClock().now(), asyncio.run(_list(config))
    if as_json:
        answer([key.to_json() | {"state": _state(key, now)} for key in found])
    elif found:
        table(("key", "name", "roles", "made", "expires", "state"), [_row(key, now) for key in found])
    else:
        typer.echo("There are no API keys. `oauthbroker api-keys create NAME` makes one.", err=True)


@app.command("rotate")
def rotate_command(
    name: Name,
    overlap: Overlap = "24h",  # type: ignore[assignment]  # as if it were typed
    expires: NewExpires = None,
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """Make a new key of this name and print it; the old ones end after the overlap."""

    async def make() -> tuple[ApiKey, Secret] | None:
        async with _vault(config) as vault:
            if all(key.name != name for key in await vault.api_keys.list()):
                return None
            return await vault.api_keys.rotate(name, overlap_seconds=overlap, lives_seconds=expires)

    made = asyncio.run(make())
    if made is None:
        raise Refused("There is no key of that name. `oauthbroker api-keys list` shows what there is.")
    _hand_over(*made, as_json=as_json)


@app.command("remove")
def remove_command(key_id: KeyId, yes: Yes = False, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """End a key at once, in every broker of the store."""
    key = _one(asyncio.run(_list(config)), key_id)
    confirm(f"End {key.id} of {key.name}?", yes=yes)

    async def remove() -> bool:
        async with _vault(config) as vault:
            return await vault.api_keys.remove(key.id)

    if not asyncio.run(remove()):
        raise Refused("Another operator has removed it meanwhile.")
    if as_json:
        answer({"id": key.id, "name": key.name})
    else:
        typer.echo(f"Removed {key.id} of {key.name}.")


def _hand_over(key: ApiKey, text: Secret, *, as_json: bool) -> None:
    """Print the key. This is the only place where it leaves the process."""
    if as_json:
        told = {name: value for name, value in key.to_json().items() if name != "createdAt"}
        answer(told | {"key": text.reveal()})
    else:
        typer.echo(text.reveal())
    until = f" until {_day(key.expires_at)}" if key.expires_at else ""
    typer.echo(f"{key.id}, {', '.join(sorted(key.roles))}{until}. It is not shown again.", err=True)


def _row(key: ApiKey, now: datetime) -> tuple[str, ...]:
    expires = _day(key.expires_at) if key.expires_at else "never"
    return key.id, key.name, " ".join(sorted(key.roles)), _day(key.created_at), expires, _state(key, now)


def _state(key: ApiKey, now: datetime) -> str:
    return "live" if key.alive_at(now) else "expired"


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}"


def _one(keys: list[ApiKey], typed: str) -> ApiKey:
    """Return the key with this id or beginning of an id. Raises Refused if none or several match."""
    typed = typed.removeprefix("key-")
    if len(typed) < SHORTEST_ID:
        raise Refused(f"Type at least {SHORTEST_ID} characters of the id.")
    found = [key for key in keys if key.locator.startswith(typed)]
    if len(found) != 1:
        raise Refused(
            "That is the beginning of several keys' ids. Type more of it."
            if found
            else f"There is no key {shown('key-' + typed[:22])}. `oauthbroker api-keys list` shows what there is."
        )
    return found[0]


async def _list(config: Path) -> list[ApiKey]:
    async with _vault(config, upgrading=False) as vault:
        return await vault.api_keys.list()


@asynccontextmanager
async def _vault(config: Path, *, upgrading: bool = True) -> AsyncIterator[Vault]:
    from oauthbroker.config import load
    from oauthbroker.wiring import open_vault

    async with open_vault(load(config).settings, upgrading=upgrading) as vault:
        yield vault
