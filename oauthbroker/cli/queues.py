"""`oauthbroker queues`: list events on their way to agents; retry or delete dead letters.

Never prints a payload. Works beside a running broker: a queue has one lock for all processes.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oauthbroker.cli.answers import answer
from oauthbroker.cli.options import CONFIG, AsJson, ConfigPath, Yes
from oauthbroker.cli.refusals import confirm
from oauthbroker.cli.text import shown, table
from oauthbroker.core.refused import Refused

if TYPE_CHECKING:
    from oauthbroker.operations.dead_letters import DeadLetter, QueueState
    from oauthbroker.operations.grants import Vault

SHORTEST_ID = 6
NOT_DEAD = "There is no such dead letter. `oauthbroker queues dead` shows what there is."

app = typer.Typer(
    help="Events on their way to agents: list, dead, retry, drop.", no_args_is_help=True, add_completion=False
)
EventId = Annotated[str, typer.Argument(metavar="EVENT_ID", help="As `queues dead` shows it; its beginning is enough.")]
Agent = Annotated[str | None, typer.Option("--agent", help="Only dead letters of this agent.")]


@app.command("list")
def list_command(as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """List the queues that have something in them, by agent."""
    found = asyncio.run(_states(config))
    if as_json:
        answer([state.to_json() for state in found])
    elif found:
        rows = [_state_row(state) for state in found]
        table(("agent", "waiting", "leased", "dead", "oldest"), rows)
    else:
        typer.echo("All queues are empty.", err=True)


@app.command("dead")
def dead_command(agent: Agent = None, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """List dead letters: events that no consumer could settle, the newest dead first."""
    found = asyncio.run(_dead(config, agent))
    if as_json:
        answer([letter.to_json() for letter in found])
    elif found:
        head = ("event", "agent", "type", "app", "swarm", "instance", "attempts", "created")
        table(head, [_letter_row(letter) for letter in found])
    else:
        typer.echo("There are no dead letters.", err=True)


@app.command("retry")
def retry_command(event_id: EventId, agent: Agent = None, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Give a dead letter all its attempts anew, at the end of its queue."""
    letter = _one(asyncio.run(_dead(config, agent)), event_id)

    async def retry() -> bool:
        async with _vault(config) as vault:
            return await vault.dead_letters.retry(letter.agent, letter.id)

    _tell(letter, "Queued again", done=asyncio.run(retry()), as_json=as_json)


@app.command("drop")
def drop_command(
    event_id: EventId, agent: Agent = None, yes: Yes = False, as_json: AsJson = False, config: ConfigPath = CONFIG
) -> None:
    """Remove a dead letter for good."""
    letter = _one(asyncio.run(_dead(config, agent)), event_id)
    confirm(f"Drop {shown(letter.id)} of {shown(letter.agent)} for good?", yes=yes)

    async def drop() -> bool:
        async with _vault(config) as vault:
            return await vault.dead_letters.drop(letter.agent, letter.id)

    _tell(letter, "Dropped", done=asyncio.run(drop()), as_json=as_json)


def _tell(letter: DeadLetter, what: str, *, done: bool, as_json: bool) -> None:
    if not done:
        raise Refused("It is no dead letter any more. Nothing was changed.")
    if as_json:
        answer({"eventId": letter.id, "agentName": letter.agent})
    else:
        typer.echo(f"{what}: {shown(letter.id)} of {shown(letter.agent)}.")


def _state_row(state: QueueState) -> tuple[str, ...]:
    oldest = str(state.to_json().get("oldestAt", "-"))
    return state.agent, str(state.waiting), str(state.leased), str(state.dead), oldest


def _letter_row(letter: DeadLetter) -> tuple[str, ...]:
    created = str(letter.to_json().get("createdAt", "-"))
    where = letter.agent, letter.type or "damaged", letter.app or "-", letter.swarm, letter.instance
    return letter.id, *where, str(letter.attempts), created


def _one(letters: list[DeadLetter], event_id: str) -> DeadLetter:
    """Return the dead letter with this id or beginning of an id. Raises Refused if none or several match."""
    typed = event_id.removeprefix("evt-").removeprefix("as-")
    found = [letter for letter in letters if letter.id.removeprefix("evt-").removeprefix("as-").startswith(typed)]
    if len(typed) < SHORTEST_ID:
        raise Refused(f"Type at least {SHORTEST_ID} characters of the id.")
    if not found:
        raise Refused(NOT_DEAD)
    if len(found) > 1:
        raise Refused("That is the beginning of several dead letters' ids. Type more of it, or name its --agent.")
    return found[0]


async def _states(config: Path) -> list[QueueState]:
    async with _vault(config, upgrading=False) as vault:
        return await vault.dead_letters.states()


async def _dead(config: Path, agent: str | None) -> list[DeadLetter]:
    async with _vault(config, upgrading=False) as vault:
        return await vault.dead_letters.dead(agent)


def _vault(config: Path, *, upgrading: bool = True) -> AbstractAsyncContextManager[Vault]:
    from oauthbroker.config import load
    from oauthbroker.wiring import open_vault

    return open_vault(load(config).settings, upgrading=upgrading)
