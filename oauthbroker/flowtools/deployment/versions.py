"""Deployed versions of tools: immutable, several at once, the one of each tool that serves, and withdrawn ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Final

from oauthbroker import Broker, BrokerError, Code
from oauthbroker.flowtools.risk import records
from oauthbroker.flowtools.risk.assessment import RiskAssessment, assess
from oauthbroker.flowtools.risk.audit_types import VersionActivated, VersionDeployed, VersionWithdrawn
from oauthbroker.flowtools.risk.records import Entry
from oauthbroker.flowtools.specification.policies import Policy, load_policy
from oauthbroker.flowtools.specification.source import FlowRefused, nearest, refusal_at, refuse
from oauthbroker.flowtools.specification.spec import FlowTool, load_tool, policy_names, refuse_changed
from oauthbroker.plugins import Clock, ConfigProblem, PluginAudit, PluginState, SystemClock

_LONGEST_REASON: Final = 300
_REFERENCE = re.compile(r"([A-Za-z0-9.]{1,128})(?:@([1-9][0-9]{0,17}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedFlow:
    """A deployed version with its own policies. `withdrawn` is the entry of its withdrawal (by, why, at)."""

    tool: FlowTool
    assessment: RiskAssessment
    policies: tuple[Policy, ...]
    by: str
    at: str
    withdrawn: Entry | None = None


class FlowVersions:
    """The versions in the broker's store. Make it on the event loop of the broker, and call its methods from threads:
    they block. Those that write wait for one another. `audit` is `audit_from_threads(broker.audit)`: it gets the entry
    of each act before the record, with the person's name `by` and `account`, that of the login; left out, it is `by`.
    """

    def __init__(self, state: PluginState, clock: Clock, audit: PluginAudit) -> None:
        self._records, self._clock, self.audit = records.FlowRecords(state), clock, audit
        self.acknowledgements = records.Acknowledgements(self._records, clock, audit)

    def deploy(
        self, raw: bytes, file: str, *, by: str, account: str = "", policies: Iterable[Policy] = ()
    ) -> DeployedFlow:
        """Deploy a specification. Idempotent. The first version of a tool serves. Raises FlowRefused for problems, red
        findings, yellow ones that are not acknowledged, and a version that is there with other bytes."""
        tool, given = load_tool(raw, file), list(policies)
        assessment = assess(tool, given)
        refuse(records.undeployable(tool, assessment))
        by, named = records.person(by), {name for _, name in policy_names(tool)}
        about: dict[str, Any] = {"tool": tool.name, "version": tool.version, "digest": tool.source.digest}
        audited = VersionDeployed(**about, actor=account or by, by=by)
        text = {
            "yaml": file.endswith((".yaml", ".yml")),
            "specification": raw.decode(),
            "policies": [asdict(each) for each in given if each.name in named],
        }

        def write() -> None:
            is_first = self.serving(tool.name) is None
            if is_first:
                self._refuse_clash(tool)
            there = self._records.of_version(tool.name, records.VERSIONS, tool.version)
            if not there:
                self.acknowledgements.refuse_missing(tool, assessment)
                self.audit(audited)
                entry = {"digest": tool.source.digest, "text": self._records.keep(text)}
                self._add(tool.name, records.VERSIONS, tool.version, by, **entry)
            # the first entry counts, also if a command whose lease was lost has written meanwhile
            self._refuse_other(tool, text["policies"])
            if is_first:
                if there:  # a command was killed between the two records
                    self.audit(audited)
                self._add(tool.name, records.ACTIVATIONS, tool.version, by)

        self._records.alone(write)
        return self.deployed(f"{tool.name}@{tool.version}")

    def activate(self, name: str, version: int, *, by: str, account: str = "") -> DeployedFlow:
        """Let a deployed version serve. Raises BrokerError, also for a withdrawn one."""
        by = records.person(by)

        def write() -> DeployedFlow:
            flow = self.deployed(f"{name}@{version}")
            if flow.withdrawn:
                note = f"{name}@{version} is permanently withdrawn; deploy the specification as a new version"
                raise BrokerError(Code.REQUEST_INVALID, note=note)
            if self.serving(name) != version:
                self._refuse_clash(flow.tool)
                self.audit(VersionActivated(tool=name, version=version, actor=account or by, by=by))
                self._add(name, records.ACTIVATIONS, version, by)
            return flow

        return self._records.alone(write)

    def withdraw(
        self, name: str, version: int, *, by: str, account: str = "", why: str = "", serving: bool = False
    ) -> Entry:
        """Permanently stop new calls to a version; its runs go on. Idempotent: the first entry stays, and is returned.
        One that serves is refused, unless `serving`: then none does. One whose text is damaged can be withdrawn.
        Raises BrokerError if it is not deployed or serves."""
        by = records.person(by)
        if len(why) > _LONGEST_REASON or not why.isprintable():
            note = f"a reason has at most {_LONGEST_REASON} printable characters"
            raise BrokerError(Code.REQUEST_INVALID, note=note)

        def write() -> None:
            self._check_deployed(name, version, f"{name}@{version}")
            if self.withdrawn(name, version):
                return
            if not serving and self.serving(name) == version:
                note = f"{name}@{version} serves; activate another version, or write --serving to let none serve"
                raise BrokerError(Code.REQUEST_INVALID, note=note)
            self.audit(VersionWithdrawn(tool=name, version=version, actor=account or by, by=by))
            self._add(name, records.WITHDRAWALS, version, by, why=why)

        self._records.alone(write)
        return self.withdrawn(name, version) or {}

    def withdrawn(self, name: str, version: int) -> Entry | None:
        """Return the entry of a version's withdrawal (by, why, at); None without one."""
        return self._records.of_version(name, records.WITHDRAWALS, version)

    def deployed(self, reference: str) -> DeployedFlow:
        """Return the version `NAME@VERSION`, or with `NAME` the one that serves, assessed again. Raises BrokerError if
        it is not deployed, and FlowRefused if it is damaged, red now, or yellow now and not acknowledged."""
        return self._load(*self.named(reference))

    def named(self, reference: str) -> tuple[str, int]:
        """Return the name and version of `NAME@VERSION`, or with `NAME` the one that serves. Raises BrokerError."""
        found = _REFERENCE.fullmatch(reference)
        if not found:
            raise BrokerError(Code.REQUEST_INVALID, note="a version is named NAME or NAME@VERSION")
        number = int(found[2]) if found[2] else self.serving(found[1])
        return found[1], self._check_deployed(found[1], number, reference)

    def names(self) -> list[str]:
        """Return the names of tools that have a version, and of those whose record is damaged."""
        return [name for name in self._records.names() if self._is_listed(name)]

    def _is_listed(self, name: str) -> bool:
        try:
            return bool(self.numbers(name))
        except FlowRefused:
            return True

    def numbers(self, name: str) -> list[int]:
        """Return the deployed versions of a tool, ascending."""
        return sorted(each["version"] for each in self._records.of(name, records.VERSIONS))

    def serving(self, name: str) -> int | None:
        """Return the version of a tool that serves; None if it has none."""
        activated = self._records.of(name, records.ACTIVATIONS)
        return int(activated[-1]["version"]) if activated else None

    def _add(self, name: str, kind: str, version: int, by: str, **more: Any) -> None:
        self._records.add(name, kind, {"version": version, "by": by, "at": self._clock.now().isoformat(), **more})

    def _check_deployed(self, name: str, number: int | None, reference: str) -> int:
        there = self.numbers(name)
        if number is None or number not in there:
            known = f"deployed versions: {', '.join(map(str, there))}" if there else nearest(name, self.names())
            note = f"{reference} is not deployed; {known or 'flow versions lists the deployed ones'}"
            raise BrokerError(Code.REQUEST_INVALID, note=note)
        return number

    def _refuse_clash(self, tool: FlowTool) -> None:
        """Refuse a tool that would serve the method and path of another one, or take its events. Versions that cannot
        be used, and withdrawn ones, are passed over: they serve nothing."""
        for other in self.names() if tool.route or tool.trigger.webhook_secret else ():
            known = None
            if other != tool.name:
                with suppress(FlowRefused, BrokerError):
                    known = self.deployed(other)
            if known is None or known.withdrawn:
                continue
            if same_route([known.tool, tool]):
                raise FlowRefused([route_problem(tool, known.tool, ", which serves")])
            if same_secret([known.tool, tool]):
                raise FlowRefused([secret_problem(tool, known.tool)])

    def _refuse_other(self, tool: FlowTool, own: Any) -> None:
        there = self._records.of_version(tool.name, records.VERSIONS, tool.version) or {}
        refuse_changed(tool, there["digest"])
        if self._records.text(there["text"], f"{tool.name}@{tool.version}")["policies"] != own:
            hint = f"write version {tool.version + 1}, or deploy it with the policies of before"
            raise FlowRefused([tool.source.problem(("policies",), "this version exists with other policies", hint)])

    def _load(self, name: str, number: int) -> DeployedFlow:
        entry, where = self._records.of_version(name, records.VERSIONS, number) or {}, f"{name}@{number}"
        text = self._records.text(entry["text"], where)
        tool = load_tool(text["specification"].encode(), f"{where}.{'yaml' if text['yaml'] else 'json'}")
        if (tool.name, tool.version, tool.source.digest) != (name, number, entry["digest"]):
            raise refusal_at(where, *records.DAMAGED)
        policies = tuple(load_policy(json.dumps(each).encode(), where) for each in text["policies"])
        assessment = assess(tool, policies)
        refuse(records.undeployable(tool, assessment))
        self.acknowledgements.refuse_missing(tool, assessment)
        about: dict[str, Any] = {"by": entry["by"], "at": entry["at"], "withdrawn": self.withdrawn(name, number)}
        return DeployedFlow(tool=tool, assessment=assessment, policies=policies, **about)


def versions_of(broker: Broker, audit: PluginAudit) -> FlowVersions:
    """Return the versions in a broker's store. Call it on the broker's event loop."""
    return FlowVersions(broker.plugin_state("flowtools"), SystemClock(), audit)


def same_route(tools: Iterable[FlowTool]) -> list[tuple[FlowTool, FlowTool]]:
    """Return the pairs of tools that have one method and path."""
    seen: dict[tuple[str, str], FlowTool] = {}
    routed = [each for each in tools if each.route]
    return [(seen[each.route], each) for each in routed if each.route and seen.setdefault(each.route, each) is not each]


def route_problem(tool: FlowTool, other: FlowTool, more: str = "") -> ConfigProblem:
    what = f"the tool {tool.name} has the method and path of {other.name} version {other.version}{more}"
    hint = f"write another path, or activate another version of {other.name}"
    return tool.source.problem(("trigger", "path"), what, hint)


def same_secret(tools: Iterable[FlowTool]) -> list[tuple[FlowTool, FlowTool]]:
    """Return the pairs of webhooks that have one secret and do not both declare it. No form of signature covers the
    receiver, so each of them takes the events of the other."""
    hooks = [each for each in tools if each.trigger.webhook_secret]
    return [
        (one, other)
        for one, other in combinations(hooks, 2)
        if one.name != other.name
        and one.trigger.webhook_secret == other.trigger.webhook_secret
        and not (one.trigger.shared_secret and other.trigger.shared_secret)
    ]


def secret_problem(tool: FlowTool, other: FlowTool) -> ConfigProblem:
    what = f"also the secret of {other.name}: a signature names no receiver, so each takes the events of the other"
    hint = "name another secret, or write sharedSecret: true in both"
    return tool.source.problem(("trigger", "webhookSecret"), what, hint)
