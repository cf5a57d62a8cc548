"""The orchestrator: it takes the events of all agents from the broker's durable queues and gives each to the process of
its agent instance. An event is acknowledged after its turn has ended durably, so a crash loses none. One that comes
again is recognised by its id: its turn goes on after its last message, or is only acknowledged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from oauthbroker import Broker, BrokerError
from oauthbroker.plugins import EventLease
from oauthbroker.tools.calling.broker_turn import note_call
from oauthbroker.tools.calling.call_life import cancelled
from oauthbroker.tools.calling.journal import COMPLETED, DurableJournal
from oauthbroker.tools.changesets.activation import Activation
from oauthbroker.tools.orchestration.agent_calls import AgentCalls, CallingTurn
from oauthbroker.tools.orchestration.agent_user import AgentUser, agents_containment
from oauthbroker.tools.orchestration.bundle_changes import BundleChanges
from oauthbroker.tools.orchestration.failed_turns import FailedTurns, UnservedQueues, is_final
from oauthbroker.tools.orchestration.instances import Instance, Instances, TurnLost
from oauthbroker.tools.orchestration.ipc import OUTDATED, IpcRefused, PeerGone
from oauthbroker.tools.orchestration.plan import SwarmPlan, plans_from
from oauthbroker.tools.orchestration.processes import Processes, ProcessSlot, StartFailed
from oauthbroker.tools.types.agent_event import UnifiedEvent, normalised
from oauthbroker.tools.types.failures import ToolFailure
from oauthbroker.tools.types.results import NAME

MOST_TURNS: Final = 64  # that run at once, those that wait for another agent not counted
WAIT_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 2.0  # at the end, for turns that have just been answered
LOG: Final = logging.getLogger("oauthbroker.tools.orchestrator")


class Orchestrator:
    """Runs the turns of all swarms of a configuration. `address` is the broker's API for the tokens of tools; None if
    it serves none. With an `activation`, agents change their bundle by changesets. `user`: the user id of agents and
    tools, which a runtime that is root has to name. Raises ValueError if they cannot or should not run so."""

    def __init__(
        self,
        broker: Broker,
        plans: Mapping[str, SwarmPlan],
        workspaces: Path,
        *,
        address: str | None = None,
        activation: Activation | None = None,
        user: int | None = None,
    ) -> None:
        self._broker, self._plans, self._address = broker, dict(plans), address
        self._instances = Instances(broker.plugin_state("tools"))
        self._calls = AgentCalls(broker, self._instances)
        self._failed = FailedTurns(
            broker,
            self._instances,
            requests=self._calls.requests,
            serves=lambda swarm, agent: swarm in self._plans and agent in self._plans[swarm].agents,
        )
        agent_user = AgentUser(
            containment=agents_containment(broker, user, plans.values()),
            workspaces=workspaces.resolve(),
            changesets=None if activation is None else activation.changesets.worktrees.root,
            address=address or "",
        )
        self._changes = BundleChanges(broker, activation, agent_user)
        self._processes = Processes(agent_user, LOG, broker.scrub)
        self._turns: set[asyncio.Task[None]] = set()
        self._is_ending = False
        self._unserved = UnservedQueues(broker, is_ours=lambda swarm: swarm in self._plans, take=self._take)

    def follow(self, plans: Mapping[str, SwarmPlan]) -> None:
        """Use a new configuration from each instance's next step on."""
        self._plans = dict(plans)

    async def run(self) -> None:
        """Take events until the task is cancelled. Then the turns under way have the grace period of their swarm."""
        consumers: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                for agent in {name for plan in self._plans.values() for name in plan.agents} - set(consumers):
                    consumers[agent] = asyncio.create_task(self._consume(agent))
                for agent in consumers:
                    with suppress(BrokerError):
                        await self._failed.look(agent)
                with suppress(BrokerError):
                    await self._unserved.look(consumers)
                await asyncio.sleep(1)
        finally:
            self._is_ending = True
            await cancelled(consumers.values())
            grace = max((plan.grace_seconds for plan in self._plans.values()), default=0.0)
            await self._processes.stop(grace)
            if self._turns:
                await asyncio.wait(self._turns, timeout=SETTLE_SECONDS)
            await cancelled(self._turns)
            await self._processes.stop(0)  # those that turns have started meanwhile

    async def _consume(self, agent: str) -> None:
        while True:
            if len(self._turns) - self._calls.waiting >= MOST_TURNS:
                await asyncio.wait(self._turns, return_when=asyncio.FIRST_COMPLETED, timeout=WAIT_SECONDS)
                continue
            try:
                delivery = await self._broker.events.lease(agent, wait=WAIT_SECONDS)
            except BrokerError:
                await asyncio.sleep(1)
                continue
            if delivery is not None:
                self._take(delivery)
            elif self._broker.life.stopping:
                return

    def _take(self, delivery: EventLease) -> None:
        task = asyncio.create_task(self._handle(delivery))
        self._turns.add(task)
        task.add_done_callback(self._turns.discard)

    async def _handle(self, delivery: EventLease) -> None:
        """Run the turn of an event and settle it. After a failure the event comes again, a few times at most. One whose
        process ended with this orchestrator has lost no attempt."""
        queued, fault = delivery.to_json(), ""
        self._failed.taken(queued)
        try:
            pause = self._broker.bundle.settings.limits.queue_lease_seconds / 3
            if not await delivery.extended_during(self._turn(normalised(queued)), pause):
                fault = "another consumer has the event"
        except IpcRefused as refused:
            fault = refused.message
        except PeerGone:
            fault = "the process of the agent ended"
        except asyncio.CancelledError:
            with suppress(BrokerError):
                await delivery.give_back()
            raise
        except Exception as error:  # noqa: BLE001  (an event must not stay leased)
            fault = type(error).__name__
        with suppress(BrokerError):
            if fault and self._is_ending:
                await delivery.give_back()
            else:
                await (self._failed.settle(delivery, queued, fault) if fault else delivery.ack())
        self._calls.turn_ended()

    async def _turn(self, event: UnifiedEvent) -> None:
        if not self._failed.has_agent(event.turn):
            await self._take_newest()  # which may have it
        if (instance := await self._failed.addressed(event)) is None:
            return
        self._plan_of(instance)
        journal = DurableJournal(self._broker, event.turn)
        if not is_final(await self._instances.outcome(event.id)):
            outcome = await self._ran(instance, await _with_output(event, journal))
            await self._instances.end_turn(event.id, self._broker.scrubber.json(outcome), event.turn)
            await journal.forget(await self._instances.call_ids(event.id))  # the conversation has their results
        if event.type == COMPLETED:
            await journal.take(str(event.payload.get("handle")))

    def _plan_of(self, instance: Instance) -> SwarmPlan:
        plan = self._plans.get(instance.swarm)
        if plan is None or instance.agent not in plan.agents:
            raise IpcRefused("E_AGENT_UNKNOWN", f"the event is for {instance.swarm}, which this runtime does not run")
        return plan

    async def _newest_plan(self, instance: Instance) -> SwarmPlan:
        """Take the newest revision of the bundle, and return the plan of an instance's swarm. Raises IpcRefused."""
        await self._take_newest()
        return self._plan_of(instance)

    async def _take_newest(self) -> None:
        if await self._changes.have_been_activated():
            self.follow(plans_from(self._broker))

    async def _ran(self, instance: Instance, event: UnifiedEvent) -> dict[str, Any]:
        """Run a turn: in one process, or in several one after another if its configuration changes meanwhile."""
        cwd = await self._instances.cwd(instance)
        async with self._processes.held(instance, cwd) as slot, self._access(event) as access:
            outcome: dict[str, Any] = {"status": OUTDATED}
            while outcome["status"] == OUTDATED:
                history = await self._instances.begin_turn(instance, event.id, event.turn)
                asked = {"event": event.to_json(), "history": history, "access": access}
                outcome = await self._ran_by(slot, event, asked)
            return outcome

    async def _ran_by(self, slot: ProcessSlot, event: UnifiedEvent, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Run a turn in the process of a slot until it ends or has another configuration."""
        instance, plan = slot.instance, await self._newest_plan(slot.instance)
        caller = CallingTurn(plan=plan, instance=instance, event=event, workdir=slot.workdir)

        async def serve(kind: str, asked: dict[str, Any]) -> Any:
            return await self._answer(caller, kind, asked)

        revision = self._changes.active
        await slot.follow(plan)
        if not slot.is_running:
            await DurableJournal(self._broker, event.turn).recover()
        config = {**plan.agents[instance.agent], "changesets": self._changes.editor_of(instance) is not None}
        try:
            outcome: dict[str, Any] = await slot.run_turn(config, serve, asked)
        except StartFailed as failed:
            if self._is_ending or not await self._changes.can_start_again(instance, revision, failed):
                raise
            self.follow(plans_from(self._broker))
            return {"status": OUTDATED}
        return outcome

    @asynccontextmanager
    async def _access(self, event: UnifiedEvent) -> AsyncIterator[dict[str, str] | None]:
        """Begin a turn at the broker, whose token ends with the block."""
        if self._address is None:
            yield None
            return
        begun = await self._broker.turns.begin(event.turn)
        try:
            yield {"url": self._address, "token": begun.token.reveal()}
        finally:
            with suppress(BrokerError):
                await self._broker.turns.end(begun.turn_id)

    async def _answer(self, caller: CallingTurn, kind: str, asked: dict[str, Any]) -> Any:
        """Answer a question of the process about its own turn."""
        event, instance = caller.event, caller.instance
        match kind, asked:
            case "step.config", _:
                current = await self._newest_plan(instance) is caller.plan
                if current:
                    await self._changes.has_run(instance)
                folders = await self._changes.folders_of(instance)
                return {"current": current, "changesets": folders, "blocks": self._changes.blocks_of(instance)}
            case "message.append", {"event": event.id, "appended": {"message": {"id": str(name), **rest}}}:
                number = int(name.rpartition(".")[2])
                message = self._broker.scrubber.json({"id": name, **rest})
                await self._kept(self._instances.record(event.id, number, message, event.turn))
                return None if message == {"id": name, **rest} else message
            case "message.get", {"number": int(number)}:
                return await self._kept(self._instances.message(event.id, number))
            case "state.get", {"owner": str(owner)}:
                return await self._kept(self._instances.value(instance, owner))
            case "state.set", {"owner": str(owner), "value": value}:
                return await self._kept(self._instances.put_value(instance, owner, value, event.turn))
            case "audit.call", {"tool": str(tool), "call": str(call)} if tool in self._broker.bundle.tools:
                return await self._kept(note_call(self._broker, event.turn, tool, self._broker.scrub(call[:NAME])))
        if kind.startswith("journal."):
            journal = DurableJournal(self._broker, event.turn)
            return await self._kept(_journaled(journal, kind, self._broker.scrubber.json(asked)))
        if kind.startswith("swarmBundle."):
            return await self._changes.answer(instance, kind, asked)
        return await self._calls.answer(caller, kind, asked)

    async def _kept(self, work: Any) -> Any:
        fault = "another process writes this turn"
        try:
            return await work
        except TurnLost:
            pass
        except ToolFailure as failure:
            fault = failure.error.message
        except BrokerError as error:
            fault = error.code.value
        raise IpcRefused("E_NOT_KEPT", fault)


async def _with_output(event: UnifiedEvent, journal: DurableJournal) -> UnifiedEvent:
    """Return an event with the output of work that has ended, where that was too large for the queue."""
    handle = str(event.payload.get("handle"))
    found = await journal.look(handle) if event.type == COMPLETED else None
    if found is None or "toolName" not in found:
        return event
    return replace(event, payload={"handle": handle, **found})


async def _journaled(journal: DurableJournal, kind: str, asked: Mapping[str, Any]) -> Any:
    """Answer one call. Raises IpcRefused, and what the journal raises."""
    match kind, asked:
        case "journal.begin", {"call": str(call)}:
            return await journal.begin(call)
        case "journal.end", {"call": str(call), "result": dict(result)}:
            return await journal.end(call, result)
        case "journal.submit", {"handle": str(handle), "call": dict(facts)}:
            return await journal.submit(handle, facts)
        case "journal.complete", {"handle": str(handle), "result": dict(result)}:
            return await journal.complete(handle, result)
    raise IpcRefused("E_IPC", "the journal does not know this call")
