"""`oauthbroker queues`: list events on their way to agents; retry or delete dead letters.

Never prints a payload. Works beside a running broker: a queue has one lock for all processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oauthbroker.cli.output.error_output import confirm
from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.options import CONFIG, LIMIT, AsJson, ConfigPath, Limit, Yes
from oauthbroker.cli.output.tables import shown
from oauthbroker.cli.stored_records import Listing, by_id, in_vault, unknown
from oauthbroker.core.refused import Refused

if TYPE_CHECKING:
    from oauthbroker.events.dead_letters import DeadLetter
    from oauthbroker.events.port import QueueDepth

app = typer.Typer(no_args_is_help=True, add_completion=False)
EventId = Annotated[str, typer.Argument(metavar="EVENT_ID", help="As `queues dead` shows it; its beginning is enough.")]
Agent = Annotated[str | None, typer.Option("--agent", help="Only dead letters of this agent.")]


@app.command("list")
def list_command(limit: Limit = LIMIT, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """List the queues that have something in them, by agent."""
    found = in_vault(config, lambda vault: vault.dead_letters.states())
    head = ("agent", "waiting", "leased", "dead", "oldest")
    listing = Listing(head, _state_row, lambda state: state.to_json(), none="All queues are empty.")
    listing.show(found, as_json=as_json, limit=limit)


@app.command("dead")
def dead_command(
    agent: Agent = None, limit: Limit = LIMIT, as_json: AsJson = False, config: ConfigPath = CONFIG
) -> None:
    """List dead letters: events that no consumer could settle, the newest dead first."""
    found = in_vault(config, lambda vault: vault.dead_letters.dead(agent))
    head = ("event", "agent", "type", "app", "swarm", "instance", "attempts", "created")
    none = "There are no dead letters."
    if agent and not found:
        queues = {state.agent for state in in_vault(config, lambda vault: vault.dead_letters.states())}
        none = none if agent in queues else unknown("queue with something in it of", agent, queues)
    listing = Listing(head, _letter_row, lambda letter: letter.to_json(), none=none)
    listing.show(found, as_json=as_json, limit=limit)


@app.command("retry")
def retry_command(event_id: EventId, agent: Agent = None, as_json: AsJson = False, config: ConfigPath = CONFIG) -> None:
    """Give a dead letter all its attempts anew, at the end of its queue."""
    letter = _one(config, agent, event_id)
    done = in_vault(config, lambda vault: vault.dead_letters.retry(letter.agent, letter.id))
    _tell(letter, "Queued again", done=done, as_json=as_json)


@app.command("drop")
def drop_command(
    event_id: EventId, agent: Agent = None, yes: Yes = False, as_json: AsJson = False, config: ConfigPath = CONFIG
) -> None:
    """Remove a dead letter for good."""
    letter = _one(config, agent, event_id)
    confirm(f"Drop {shown(letter.id)} of {shown(letter.agent)} for good?", yes=yes)
    done = in_vault(config, lambda vault: vault.dead_letters.drop(letter.agent, letter.id))
    _tell(letter, "Dropped", done=done, as_json=as_json)


def _tell(letter: DeadLetter, what: str, *, done: bool, as_json: bool) -> None:
    if not done:
        raise Refused("It is no dead letter any more. Nothing was changed.")
    document = {"eventId": letter.id, "agentName": letter.agent}
    say(f"{what}: {shown(letter.id)} of {shown(letter.agent)}.", document, as_json=as_json)


def _state_row(state: QueueDepth) -> tuple[str, ...]:
    oldest = str(state.to_json().get("oldestAt", "-"))
    return state.agent, str(state.waiting), str(state.leased), str(state.dead), oldest


def _letter_row(letter: DeadLetter) -> tuple[str, ...]:
    created = str(letter.to_json().get("createdAt", "-"))
    place = letter.swarm or "-", letter.instance or "-"
    where = letter.agent or "-", letter.type or "damaged", letter.app or "-", *place
    return letter.id, *where, str(letter.attempts), created


def _one(config: Path, agent: str | None, event_id: str) -> DeadLetter:
    found = in_vault(config, lambda vault: vault.dead_letters.dead(agent))
    letter = by_id(((each.id, each) for each in found), event_id, ("evt-", "as-"), "dead letter", "queues dead")
    if not letter.agent:
        raise Refused("This dead letter is damaged and does not name its agent. Name it with --agent.")
    return letter
