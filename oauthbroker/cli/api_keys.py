"""`oauthbroker api-keys`: manage the keys of the HTTP API. A key is printed once, when it is made."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oauthbroker.cli.output.error_output import confirm
from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.options import CONFIG, LIMIT, AsJson, ConfigPath, Limit, Yes
from oauthbroker.cli.stored_records import Listing, by_id, in_vault, unknown
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.refused import Refused

if TYPE_CHECKING:
    from datetime import datetime

    from oauthbroker.core.secret import Secret
    from oauthbroker.grants.grants import Vault
    from oauthbroker.model.settings import Role
    from oauthbroker.records.api_key import ApiKey

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d{1,9})([smhd])")


def _seconds(text: str) -> int:
    """Return the seconds of `90d`, `24h`, `30m` or `45s`. Raises BadParameter for any other text."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter("Write a number and its unit: 90d, 24h, 30m or 45s.")
    return int(found[1]) * _UNITS[found[2]]


app = typer.Typer(no_args_is_help=True, add_completion=False)


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
    made = in_vault(config, lambda vault: vault.api_keys.create(name, words, lives_seconds=expires))
    _hand_over(*made, as_json=as_json)


@app.command("list")
def list_command(limit: Limit = LIMIT, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """List the keys, expired ones too."""
    now = SystemClock().now()
    head = ("key", "name", "roles", "made", "expires", "state")
    none = "There are no API keys. `oauthbroker api-keys create NAME` makes one."

    def document(key: ApiKey) -> dict[str, Any]:
        return key.to_json() | {"state": _state(key, now)}

    listing = Listing(head, lambda key: _row(key, now), document, none=none)
    listing.show(_keys(config), as_json=as_json, limit=limit)


@app.command("rotate")
def rotate_command(
    name: Name,
    overlap: Overlap = "24h",  # type: ignore[assignment]  # as if it were typed
    expires: NewExpires = None,
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """Make a new key of this name and print it; the old ones end after the overlap."""

    async def make(vault: Vault) -> tuple[ApiKey, Secret]:
        names = {key.name for key in await vault.api_keys.list()}
        if name not in names:
            raise Refused(f"{unknown('key of the name', name, names)} `oauthbroker api-keys create` makes one.")
        return await vault.api_keys.rotate(name, overlap_seconds=overlap, lives_seconds=expires)

    _hand_over(*in_vault(config, make), as_json=as_json)


@app.command("remove")
def remove_command(key_id: KeyId, yes: Yes = False, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """End a key at once, in every broker of the store; turns that it began live on.

    They end after `limits.turnSeconds` at the latest (by default an hour). No command ends them: call `DELETE
    /v1/turns/{turnId}` with another runtime's key for each turn of `oauthbroker audit tail --type TurnBegun`.

    A damaged record is in no list: type the whole id of its key, the middle part of the key itself.
    """
    from oauthbroker.model.turn_token import LOCATOR

    keys = [(key.id, key.name) for key in _keys(config)]
    whole = f"key-{key_id.removeprefix('key-')}"
    if LOCATOR.fullmatch(whole.removeprefix("key-")):
        keys.append((whole, dict(keys).get(whole, "")))
    found, name = by_id(((each[0], each) for each in dict(keys).items()), key_id, ("key-",), "key", "api-keys list")
    text = f"{found} of {name}" if name else found
    confirm(f"End {text}?", yes=yes)

    if not in_vault(config, lambda vault: vault.api_keys.remove(found)):
        there = "Another operator has removed it meanwhile."
        raise Refused(there if name else f"There is no key {found}. `oauthbroker api-keys list` shows what there is.")
    say(f"Removed {text}.", {"id": found, "name": name}, as_json=as_json)


def _hand_over(key: ApiKey, text: Secret, *, as_json: bool) -> None:
    """Print the key. This is the only place where it leaves the process."""
    members = {name: value for name, value in key.to_json().items() if name != "createdAt"}
    say(text.reveal(), members | {"key": text.reveal()}, as_json=as_json)
    until = f" until {_day(key.expires_at)}" if key.expires_at else ""
    typer.echo(f"{key.id}, {', '.join(sorted(key.roles))}{until}. It is not shown again.", err=True)


def _row(key: ApiKey, now: datetime) -> tuple[str, ...]:
    expires = _day(key.expires_at) if key.expires_at else "never"
    return key.id, key.name, " ".join(sorted(key.roles)), _day(key.created_at), expires, _state(key, now)


def _state(key: ApiKey, now: datetime) -> str:
    return "live" if key.alive_at(now) else "expired"


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}"


def _keys(config: Path) -> list[ApiKey]:
    return in_vault(config, lambda vault: vault.api_keys.list())
