"""The channel's side of one conversation: what the user writes goes to the queue of the entry agent, and answers of its
turns come back, also of those turns that an event of the broker began."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from oauthbroker import Broker, Turn, TurnAuth
from oauthbroker.tools import Instance, Instances

SWARM, AGENT = "Swarm/team", "assistant"


@dataclass(frozen=True)
class Line:
    """One line of the chat."""

    who: str
    text: str


@dataclass
class Conversation:
    """A chat of one user with the assistant. `questions` are the user's words by the id of their event."""

    broker: Broker
    user: str
    questions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._instances = Instances(self.broker.plugin_state("tools"))
        auth = TurnAuth(actor={"type": "user", "id": self.user}, subjects={"user": self.user})
        self._turn = Turn(
            agent_name=AGENT, instance_key="chat-1", swarm_ref=SWARM, origin={"connector": "chat"}, auth=auth
        )

    async def say(self, text: str) -> None:
        """Queue a message of the user."""
        payload = {"input": text, "source": {"kind": "connector", "name": "chat"}}
        event_id = await self.broker.events.enqueue(AGENT, "chat.message", payload, turn=self._turn)
        self.questions[event_id] = text

    async def lines(self) -> list[Line]:
        """Return questions and answers, in the order of the turns."""
        lines = []
        begun = await self._instances.turns(Instance.of(self._turn))
        for event_id in [*begun, *(each for each in self.questions if each not in begun)]:
            if event_id in self.questions:
                lines.append(Line("you", self.questions[event_id]))
            if (outcome := await self._instances.outcome(event_id)) is not None:
                lines.append(Line(AGENT, outcome["answer"]))
        return lines

    async def answer(self, number: int) -> str:
        """Wait for the answer of this number, counted from 1."""
        while True:
            answers = [line.text for line in await self.lines() if line.who == AGENT]
            if len(answers) >= number:
                return answers[number - 1]
            await asyncio.sleep(0.1)
