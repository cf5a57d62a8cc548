"""Agent instances as they are remembered: their conversations, the state of turns, the values of extensions. All is
durable before it is answered. Messages are kept by event and number, so a turn that comes again goes on where it was,
and two processes cannot write one turn."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

from oauthbroker import Turn
from oauthbroker.plugins import PluginState
from oauthbroker.tools.calling.journal import about

KEPT_TURNS: Final = 20  # of an instance: what the model sees of earlier turns
KNOWN_TURNS: Final = 256  # of an instance: as many settled events as the queue remembers
MOST_HISTORY: Final = 512 * 1024  # characters: one message between processes takes them, at most 12 bytes each
MOST_LISTED: Final = 2000  # instances of a swarm
NAMED: Final = 'named["'  # how the key of an instance begins that an agent has named, and no other key
BETWEEN: Final = "\x1f"
Outcome = Mapping[str, Any]


class TurnLost(Exception):
    """Another process writes this turn: stop it here."""


@dataclass(frozen=True, slots=True)
class Instance:
    """The address of an agent instance: the one that takes the events of a conversation, or with `spawned` one that an
    agent of the conversation has named. `swarm` is written `Swarm/name`, as in a Turn. Raises ValueError for another
    swarm, and for a conversation whose key has the form of a named one."""

    swarm: str
    agent: str
    conversation: str
    _: KW_ONLY
    spawned: str | None = None

    def __post_init__(self) -> None:
        if self.swarm.count("/") != 1:
            raise ValueError(f"a swarm is written Kind/name, as in a Turn: Swarm/{self.swarm}")
        if self.conversation.startswith(NAMED):
            raise ValueError(f"an instanceKey must not begin with {NAMED}: choose another key for the conversation")

    @classmethod
    def of(cls, turn: Turn) -> Instance:
        """Return the instance of a turn. Raises ValueError for a key that no instance has."""
        conversation, spawned = _parts(turn.instance_key)
        return cls(turn.swarm_ref, turn.agent_name, conversation, spawned=spawned)

    @property
    def key(self) -> str:
        """Return the `instance_key` of its turns: one text for each conversation and name."""
        return self.conversation if self.spawned is None else _named(self.conversation, self.spawned)

    @property
    def name(self) -> str:
        """Return its name in IPC messages."""
        return f"Agent/{self.agent}/{self.key}"

    @property
    def digest(self) -> str:
        """Return the name under which the store keeps what belongs to the instance."""
        return _digest(self.swarm, self.agent, self.key)


class Instances:
    """The instances of all swarms, in the durable values of the plug-in."""

    def __init__(self, state: PluginState) -> None:
        self._state = state

    async def outcome(self, event_id: str) -> Outcome | None:
        """Return how the turn of an event ended; None while it has not."""
        found: Outcome | None = await self._state.get(_key("turn", event_id))
        return found

    async def turns(self, instance: Instance) -> list[str]:
        """Return the ids of the newest events of an instance, in the order in which their turns began."""
        return list((await self._state.get(f"agents/instance/{instance.digest}") or {}).get("turns", []))

    async def begin_turn(self, instance: Instance, event_id: str, turn: Turn) -> list[Any]:
        """Begin a turn, or take one up again. Return the messages of earlier turns."""
        turns = await self._listed(instance, event_id, turn)
        return await self._history(turns[-KEPT_TURNS - 1 : -1])

    async def _listed(self, instance: Instance, event_id: str, turn: Turn) -> list[str]:
        """Make a turn the newest of its instance, and return all."""
        dropped: list[str] = []

        def add(record: Any) -> Any:
            dropped.clear()
            turns = [each for each in (record or {}).get("turns", []) if each != event_id] + [event_id]
            dropped.extend(turns[:-KNOWN_TURNS])
            return {"agent": instance.agent, "instanceKey": instance.key, "turns": turns[-KNOWN_TURNS:]}

        record = await self._state.change(f"agents/instance/{instance.digest}", add, subjects=about(turn))
        for gone in dropped:
            await self._state.remove(_key("turn", gone))
        turns: list[str] = record["turns"]
        await self._forget_messages(turns[: -KEPT_TURNS - 1][-1:])
        return turns

    async def record(self, event_id: str, number: int, message: Mapping[str, Any], turn: Turn) -> None:
        """Keep a message of a turn. Raises TurnLost if another process has written this number."""

        def once(there: Any) -> Any:
            if there is not None and there != message:
                raise TurnLost
            return dict(message)

        await self._state.change(_message_key(event_id, number), once, subjects=about(turn))

    async def message(self, event_id: str, number: int) -> Any:
        """Return a message of a turn; None if it has fewer."""
        return await self._state.get(_message_key(event_id, number))

    async def messages(self, event_id: str) -> list[Any]:
        """Return all messages of a turn as JSON, in their order."""
        messages: list[Any] = []
        while (message := await self.message(event_id, len(messages))) is not None:
            messages.append(message)
        return messages

    async def end_turn(self, event_id: str, outcome: Outcome, turn: Turn) -> None:
        """Keep the outcome of a turn."""
        await self._state.change(_key("turn", event_id), lambda _: dict(outcome), subjects=about(turn))

    async def fail(self, event_id: str, outcome: Outcome, turn: Turn | None) -> bool:
        """List a turn that no process has ended, then keep its outcome: what a crash cuts short is done again. `turn`
        is None for a damaged event. Return False if it has an outcome."""
        if await self.outcome(event_id) is not None:
            return False
        if turn is not None:
            with suppress(ValueError):  # the key of no instance
                instance = Instance.of(turn)
                if event_id not in await self.turns(instance):
                    await self._listed(instance, event_id, turn)
        new = False

        def keep(there: Any) -> Any:
            nonlocal new
            new = there is None
            return dict(outcome) if new else there

        await self._state.change(_key("turn", event_id), keep, subjects=None if turn is None else about(turn))
        return new

    async def value(self, instance: Instance, owner: str) -> Any:
        """Return the value of an extension."""
        return (await self._state.get(_value_key(instance, owner)) or {}).get("value")

    async def put_value(self, instance: Instance, owner: str, value: Any, turn: Turn) -> None:
        """Keep the value of an extension, which is JSON."""
        await self._state.change(_value_key(instance, owner), lambda _: {"value": value}, subjects=about(turn))

    async def prepare(self, instance: Instance, by: Instance, cwd: str | None) -> bool:
        """List an instance that was spawned. Return whether it is new."""
        new = False

        def add(there: Any) -> Any:
            nonlocal new
            listed = list(there or [])
            new = not any((each["agent"], each["name"]) == (instance.agent, instance.spawned) for each in listed)
            entry = {"agent": instance.agent, "name": instance.spawned, "by": [by.agent, by.key], "cwd": cwd}
            return [*listed, entry][-MOST_LISTED:] if new else listed

        await self._state.change(_key("named", instance.swarm, instance.conversation), add)
        return new

    async def spawned(self, of: Instance) -> list[dict[str, Any]]:
        """Return the instances that were spawned in a conversation: `{agent, name, by, cwd}`."""
        listed: list[dict[str, Any]] = await self._state.get(_key("named", of.swarm, of.conversation)) or []
        return listed

    async def call_ids(self, event_id: str) -> list[str]:
        """Return the ids of all tool calls of a turn."""
        return [call["id"] for message in await self.messages(event_id) for call in message.get("toolCalls", ())]

    async def cwd(self, instance: Instance) -> str | None:
        """Return the folder with which an instance was spawned."""
        if instance.spawned is None:
            return None
        listed = await self.spawned(instance)
        own = [each for each in listed if (each["agent"], each["name"]) == (instance.agent, instance.spawned)]
        return own[0]["cwd"] if own else None

    async def _history(self, turns: list[str]) -> list[Any]:
        """Return the messages of the newest turns that fit."""
        history: list[Any] = []
        size = 0
        for event_id in reversed(turns):
            messages = await self.messages(event_id)
            size += sum(len(str(each)) for each in messages)
            if size > MOST_HISTORY:
                break
            history = messages + history
        return history

    async def _forget_messages(self, turns: list[str]) -> None:
        for event_id in turns:
            number = 0
            while await self._state.remove(_message_key(event_id, number)):
                number += 1


def _parts(key: str) -> tuple[str, str | None]:
    """Return conversation and name of an `instance_key`. The key of no instance comes back whole."""
    named: Any = None
    if key.startswith(NAMED):
        with suppress(ValueError, RecursionError):
            named = json.loads(key.removeprefix("named"))
    match named:
        case [str(conversation), str(spawned)] if key == _named(conversation, spawned):
            return conversation, spawned
    return key, None


def _named(conversation: str, spawned: str) -> str:
    return f"named{json.dumps([conversation, spawned])}"


def _digest(*names: str) -> str:
    """Return another digest for each tuple of names of one length."""
    text = BETWEEN.join(names)
    if text.count(BETWEEN) >= len(names):  # a name holds the separator; without it, stores have the joined text's
        text = BETWEEN * len(names) + json.dumps(names)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _key(kind: str, *names: str) -> str:
    """Return the key of a durable value, such as the outcome of the turn of an event."""
    return f"agents/{kind}/{_digest(*names)}"


def _message_key(event_id: str, number: int) -> str:
    return f"{_key('message', event_id)}/{number}"


def _value_key(instance: Instance, owner: str) -> str:
    return f"agents/value/{instance.digest}/{_digest(owner)}"
