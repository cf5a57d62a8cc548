"""Who acknowledged which yellow findings of a specification, and when. Entries are added and never changed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.risk.assessment import RiskAssessment
from oauthbroker.flowtools.risk.records import ACKNOWLEDGEMENTS, Entry, FlowRecords
from oauthbroker.flowtools.risk.rules import RED, YELLOW, FlowFinding
from oauthbroker.flowtools.specification.source import FlowRefused
from oauthbroker.flowtools.specification.spec import FlowTool
from oauthbroker.plugins import Clock, ConfigProblem

_LONGEST_NAME: Final = 100


class Acknowledgements:
    """The acknowledgements of all tools. One holds for the bytes of one specification, found by their digest."""

    def __init__(self, records: FlowRecords, clock: Clock) -> None:
        self._records, self._clock = records, clock

    def of(self, tool: FlowTool) -> list[Entry]:
        """Return the acknowledgements of exactly this specification, the oldest first."""
        return [each for each in self._records.of(tool.name, ACKNOWLEDGEMENTS) if each["digest"] == tool.source.digest]

    def missing(self, tool: FlowTool, assessment: RiskAssessment) -> list[FlowFinding]:
        """Return the yellow findings that no person has acknowledged for this specification."""
        known = [finding for each in self.of(tool) for finding in each["findings"]]
        return [each for each in assessment.findings if each.risk == YELLOW and finding_key(each) not in known]

    def record(
        self,
        tool: FlowTool,
        assessment: RiskAssessment,
        *,
        by: str,
        chosen: Collection[str] = (),
        before: Callable[[str], None] = lambda _: None,
    ) -> list[FlowFinding]:
        """Record that a person accepts findings, the chosen ones or all, and return the new ones. `before` gets each
        one's key. Raises FlowRefused for a tool that cannot be deployed, and BrokerError for an unknown finding."""
        refuse_undeployable(tool, assessment)
        by = person(by)
        keys = [finding_key(each) for each in assessment.findings]
        if unknown := sorted(set(chosen) - set(keys)):
            note = f"{unknown[0]!r} is no finding of this tool; it has {', '.join(keys) or 'none'}"
            raise BrokerError(Code.REQUEST_INVALID, note=note)

        def write() -> list[FlowFinding]:
            new = [each for each in self.missing(tool, assessment) if not chosen or finding_key(each) in chosen]
            if new:
                names, at = [finding_key(each) for each in new], self._clock.now().isoformat()
                entry = {"version": tool.version, "digest": tool.source.digest, "findings": names, "by": by, "at": at}
                for each in names:
                    before(each)
                self._records.add(tool.name, ACKNOWLEDGEMENTS, entry)
            return new

        return self._records.alone(write)

    def refuse_missing(self, tool: FlowTool, assessment: RiskAssessment) -> None:
        """Refuse a tool with a yellow finding that is not acknowledged. Raises FlowRefused, which names each one."""
        problems = [
            _problem(tool, each, "not acknowledged", f"{each.hint}; or run oauthbroker flow acknowledge")
            for each in self.missing(tool, assessment)
        ]
        if problems:
            raise FlowRefused(problems)


def refuse_undeployable(tool: FlowTool, assessment: RiskAssessment) -> None:
    """Refuse a tool with problems or red findings. Nothing allows one. Raises FlowRefused."""
    if problems := undeployable(tool, assessment):
        raise FlowRefused(problems)


def undeployable(tool: FlowTool, assessment: RiskAssessment) -> list[ConfigProblem]:
    """Return the problems of a tool, and its red findings."""
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
