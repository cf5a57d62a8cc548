"""Run the forwarders of the configuration in use."""

from __future__ import annotations

import asyncio

from oauthbroker.core.lifecycle import Life
from oauthbroker.events.forwarding.agent_forwarder import AgentForwarder, ForwardingParts
from oauthbroker.events.forwarding.senders import Sender, sender_of
from oauthbroker.model.current_config import CurrentConfig
from oauthbroker.model.forwarders import Forwarder
from oauthbroker.model.settings import Settings

DRAIN_SECONDS = 5.0


class _Running:
    """A forwarder at work. Once stopped, it ends when its sends under way are settled."""

    def __init__(self, forwarder: Forwarder, parts: ForwardingParts, settings: Settings) -> None:
        self.forwarder, self.life = forwarder, Life()
        sender = sender_of(forwarder, settings, parts.clock)
        self.task = asyncio.create_task(self._run(sender, parts))

    async def _run(self, sender: Sender, parts: ForwardingParts) -> None:
        name, life = self.forwarder.name, self.life
        agents = [AgentForwarder(parts, sender, name=name, agent=agent, life=life) for agent in self.forwarder.agents]
        try:
            await asyncio.gather(*(each.run() for each in agents))
        finally:
            await sender.close()


class Forwarding:
    """All forwarders of one broker."""

    def __init__(self, config: CurrentConfig, parts: ForwardingParts) -> None:
        self._config, self._parts = config, parts
        self._running: list[_Running] | None = None

    def begin(self) -> None:
        """Begin to forward."""
        self._running = []
        self.follow()

    def follow(self) -> None:
        """Take the configuration that is now in use: stop forwarders that are gone or different, and begin new ones.
        Does nothing before `begin`."""
        if self._running is None:
            return
        bundle = self._config.bundle
        for each in self._running:
            if each.forwarder not in bundle.forwarders:
                each.life.stop()
        there = [each.forwarder for each in self._running if not each.life.stopping]
        self._running = [each for each in self._running if not each.task.done()] + [
            _Running(each, self._parts, bundle.settings) for each in bundle.forwarders if each not in there
        ]

    async def close(self) -> None:
        """Let sends under way end, for a moment, then cancel them: their events are given back."""
        running = self._running or []
        for each in running:
            each.life.stop()
        tasks = [each.task for each in running]
        if tasks:
            await asyncio.wait(tasks, timeout=DRAIN_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
