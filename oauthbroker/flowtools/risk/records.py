"""Deployments and acknowledgements in the broker's store. Each tool has one record, whose lists only grow, and each
specification has one, which is found by its hash. Entries are added and never changed."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextvars import Context, copy_context
from typing import Any, Final, TypeVar

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.risk.assessment import RiskAssessment
from oauthbroker.flowtools.risk.audit_types import FindingAcknowledged
from oauthbroker.flowtools.risk.rules import RED, YELLOW, FlowFinding
from oauthbroker.flowtools.specification.source import refusal_at, refuse
from oauthbroker.flowtools.specification.spec import FlowTool
from oauthbroker.plugins import Clock, ConfigProblem, PluginAudit, PluginState, wait_on

Entry = Mapping[str, Any]
T = TypeVar("T")
FORMAT: Final = 1
LOCK_SECONDS: Final = 10.0
DAMAGED: Final = "damaged", "restore the store from a backup"
VERSIONS, ACTIVATIONS, WITHDRAWALS, ACKNOWLEDGEMENTS = "versions", "activations", "withdrawals", "acknowledgements"
_EMPTY: Final[Mapping[str, Any]] = {
    "format": FORMAT,
    **{kind: [] for kind in (VERSIONS, ACTIVATIONS, WITHDRAWALS, ACKNOWLEDGEMENTS)},
}
_TOOL, _TEXT, _NAMES = "flow/", "flow-text/", "flows"
_LONGEST_NAME: Final = 100
_LONGEST_CALL: Final = 60.0  # seconds; a store refuses sooner


class FlowRecords:
    """The records of flow tools. Its methods block: call them from a thread, while the event loop runs on which this
    object was made. Reading raises FlowRefused for a record that is damaged or of a newer format."""

    def __init__(self, state: PluginState) -> None:
        self._state, self._loop = state, asyncio.get_running_loop()

    def alone(self, work: Callable[[], T]) -> T:
        """Do work while no other command writes, on any host. Raises `storeLocked` if one does for long, and
        `brokerUnreachable` once the loop has ended."""
        lease = self._state.lease("flows", wait=LOCK_SECONDS)

        async def enter() -> Context:
            await lease.__aenter__()
            return copy_context()  # in it, a shared store reads from its database alone

        async def leave() -> None:
            await lease.__aexit__(None, None, None)

        context = self._done(enter())
        try:
            return context.run(work)  # in the caller's thread: a pool may be full of those that wait
        finally:
            self._done(leave())

    def names(self) -> list[str]:
        """Return the names of all tools that may be deployed."""
        return sorted(self._read(_NAMES, _NAMES) or [])

    def of(self, tool: str, kind: str) -> list[Entry]:
        """Return the entries of a tool, the oldest first."""
        found: list[Entry] = (self._read(_TOOL + tool, tool) or _EMPTY)[kind]
        return found

    def of_version(self, tool: str, kind: str, version: int) -> Entry | None:
        """Return the first entry about a version. No later one changes it."""
        return next((each for each in self.of(tool, kind) if each["version"] == version), None)

    def add(self, tool: str, kind: str, entry: Entry) -> None:
        """Add an entry durably."""
        self._done(self._state.change(_NAMES, lambda there: sorted({*(there or ()), tool})))
        self._done(
            self._state.change(
                _TOOL + tool, lambda there: {**(there or _EMPTY), kind: [*(there or _EMPTY)[kind], dict(entry)]}
            )
        )

    def keep(self, text: Entry) -> str:
        """Store a specification with its policies durably, and return the hash by which `text` finds it."""
        name = _hash(text)
        self._done(self._state.change(_TEXT + name, lambda _: dict(text)))
        return name

    def text(self, name: str, where: str) -> Entry:
        """Return what `keep` stored. `where` names it in a refusal."""
        found: Entry | None = self._read(_TEXT + name, where)
        if found is None or _hash(found) != name:
            raise refusal_at(where, *DAMAGED)
        return found

    def _read(self, key: str, where: str) -> Any:
        try:
            found = self._done(self._state.get(key))
        except BrokerError as error:
            if error.code is not Code.RECORD_CORRUPT:
                raise
        else:
            if not isinstance(found, dict) or found.get("format", FORMAT) == FORMAT:
                return found
            raise refusal_at(where, "of a newer format", "upgrade oauthbroker")
        raise refusal_at(where, *DAMAGED)

    def _done(self, work: Coroutine[Any, Any, T]) -> T:
        return wait_on(self._loop, work, _LONGEST_CALL)


def _hash(text: Entry) -> str:
    return hashlib.sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()


class Acknowledgements:
    """The acknowledgements of all tools. One holds for the bytes of one specification, found by their digest."""

    def __init__(self, records: FlowRecords, clock: Clock, audit: PluginAudit) -> None:
        self._records, self._clock, self._audit = records, clock, audit

    def of(self, tool: FlowTool) -> list[Entry]:
        """Return the acknowledgements of exactly this specification, the oldest first."""
        return [each for each in self._records.of(tool.name, ACKNOWLEDGEMENTS) if each["digest"] == tool.source.digest]

    def missing(self, tool: FlowTool, assessment: RiskAssessment) -> list[FlowFinding]:
        """Return the yellow findings that no person has acknowledged for this specification."""
        known = [finding for each in self.of(tool) for finding in each["findings"]]
        return [each for each in assessment.findings if each.risk == YELLOW and finding_key(each) not in known]

    def record(
        self, tool: FlowTool, assessment: RiskAssessment, *, by: str, account: str = "", chosen: Collection[str] = ()
    ) -> list[FlowFinding]:
        """Record that a person accepts findings, the chosen ones or all, and return the new ones. Raises FlowRefused
        for a tool that cannot be deployed, and BrokerError for an unknown finding."""
        refuse(undeployable(tool, assessment))
        by = person(by)
        keys = [finding_key(each) for each in assessment.findings]
        if unknown := sorted(set(chosen) - set(keys)):
            note = f"{unknown[0]!r} is no finding of this tool; it has {', '.join(keys) or 'none'}"
            raise BrokerError(Code.REQUEST_INVALID, note=note)

        def write() -> list[FlowFinding]:
            new = [each for each in self.missing(tool, assessment) if not chosen or finding_key(each) in chosen]
            if new:
                names, at = [finding_key(each) for each in new], self._clock.now().isoformat()
                about: dict[str, Any] = {"version": tool.version, "digest": tool.source.digest, "by": by}
                for each in names:
                    entry = FindingAcknowledged(**about, tool=tool.name, finding=each, actor=account or by)
                    self._audit(entry)
                self._records.add(tool.name, ACKNOWLEDGEMENTS, {**about, "findings": names, "at": at})
            return new

        return self._records.alone(write)

    def refuse_missing(self, tool: FlowTool, assessment: RiskAssessment) -> None:
        """Refuse a tool with a yellow finding that is not acknowledged. Raises FlowRefused, which names each one."""
        refuse(
            _problem(tool, each, "not acknowledged", f"{each.hint}; or run `oauthbroker flow acknowledge`")
            for each in self.missing(tool, assessment)
        )


def undeployable(tool: FlowTool, assessment: RiskAssessment) -> list[ConfigProblem]:
    """Return why a tool cannot be deployed: its problems and red findings. Nothing allows one."""
    red = [_problem(tool, each, "red", each.hint) for each in assessment.findings if each.risk == RED]
    return [*assessment.problems, *red]


def finding_key(found: FlowFinding) -> str:
    """Return the name of a finding in its tool, such as `5:tell`."""
    return f"{found.rule}:{found.node}"


def person(name: str) -> str:
    """Return a person's name, if it is one line of text. Raises BrokerError."""
    if not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise BrokerError(Code.REQUEST_INVALID, note=f"--by takes a name of 1 to {_LONGEST_NAME} printable characters")
    return name.strip()


def _problem(tool: FlowTool, found: FlowFinding, state: str, hint: str) -> ConfigProblem:
    path = tool.nodes[found.node].path if found.node in tool.nodes else ("flow", "startNode")
    return tool.source.problem(path, f"{finding_key(found)} is {state}: {found.what}", hint)
