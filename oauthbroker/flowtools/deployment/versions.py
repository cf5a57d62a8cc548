"""Deployed versions of tools: immutable, several at once, the one of each tool that serves, and withdrawn ones."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.risk.acknowledgements import Acknowledgements, person, refuse_undeployable
from oauthbroker.flowtools.risk.assessment import RiskAssessment, assess
from oauthbroker.flowtools.risk.write_once_files import DAMAGED, Document, WriteOnceFiles, refused
from oauthbroker.flowtools.specification.policies import Policy, load_policy
from oauthbroker.flowtools.specification.source import FlowRefused
from oauthbroker.flowtools.specification.spec import FlowTool, load_tool, policy_names, refuse_changed
from oauthbroker.plugins import Clock, ConfigProblem

_VERSIONS, _ACTIVATIONS, _WITHDRAWALS = "versions", "activations", "withdrawals"
_MEMBERS: Final = {
    "version": int,
    "digest": str,
    "yaml": bool,
    "specification": str,
    "policies": list,
    "by": str,
    "at": str,
}
_ACTIVATED: Final = {"version": int, "by": str, "at": str}
_WITHDRAWN: Final = {"version": int, "by": str, "why": str, "at": str}
_LONGEST_REASON: Final = 300
_REFERENCE = re.compile(r"([A-Za-z0-9.]{1,128})(?:@([1-9][0-9]{0,17}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedFlow:
    """A deployed version: its specification in the one form, its own policies, and who deployed it when. `withdrawn` is
    the record of its withdrawal (by, why, at)."""

    tool: FlowTool
    assessment: RiskAssessment
    policies: tuple[Policy, ...]
    by: str
    at: str
    withdrawn: Document | None = None


class FlowVersions:
    """The versions in a folder. The methods that write take the lock of the folder."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._files, self._clock = WriteOnceFiles(folder), clock
        self.acknowledgements = Acknowledgements(self._files, clock)

    def deploy(self, raw: bytes, file: str, *, by: str, policies: Iterable[Policy] = ()) -> DeployedFlow:
        """Deploy a specification. Idempotent. The first version of a tool serves. Raises FlowRefused for problems, red
        findings, yellow ones that are not acknowledged, and a version that is there with other bytes."""
        tool, given = load_tool(raw, file), list(policies)
        assessment = assess(tool, given)
        refuse_undeployable(tool, assessment)
        by, named = person(by), {name for _, name in policy_names(tool)}
        own = [asdict(each) for each in given if each.name in named]
        with self._files.writing():
            first = self.serving(tool.name) is None
            if first:
                self._refuse_clash(tool)
            if tool.version in self.numbers(tool.name):
                self._refuse_other(tool, own)
            else:
                self.acknowledgements.refuse_missing(tool, assessment)
                document = {
                    "version": tool.version,
                    "digest": tool.source.digest,
                    "yaml": file.endswith((".yaml", ".yml")),
                    "specification": raw.decode(),
                    "policies": own,
                    "by": by,
                    "at": self._clock.now().isoformat(),
                }
                self._files.write(tool.name, _VERSIONS, tool.version, document)
            if first:
                self._activate(tool.name, tool.version, by)
        return self.deployed(f"{tool.name}@{tool.version}")

    def activate(self, name: str, version: int, *, by: str) -> DeployedFlow:
        """Let a deployed version serve, an older or a newer one. Raises BrokerError for one that is not deployed or is
        withdrawn."""
        by = person(by)
        with self._files.writing():
            flow = self.deployed(f"{name}@{version}")
            if flow.withdrawn:
                note = f"{name}@{version} is permanently withdrawn; deploy the specification as a new version"
                raise BrokerError(Code.REQUEST_INVALID, note=note)
            if self.serving(name) != version:
                self._refuse_clash(flow.tool)
                self._activate(name, version, by)
        return flow

    def withdraw(self, name: str, version: int, *, by: str, why: str = "", serving: bool = False) -> Document:
        """Permanently stop new calls to a version. Its runs that have begun go on. Idempotent: the first record stays,
        and is returned. The version that serves is refused, unless `serving`: then no version serves.

        Raises BrokerError if it is not deployed or serves. A version whose file is damaged can be withdrawn.
        """
        by = person(by)
        if len(why) > _LONGEST_REASON or not why.isprintable():
            note = f"a reason has at most {_LONGEST_REASON} printable characters"
            raise BrokerError(Code.REQUEST_INVALID, note=note)
        with self._files.writing():
            self._check_deployed(name, version, f"{name}@{version}")
            if not self.withdrawn(name, version):
                if not serving and self.serving(name) == version:
                    note = f"{name}@{version} serves; activate another version, or write --serving to let none serve"
                    raise BrokerError(Code.REQUEST_INVALID, note=note)
                document = {"version": version, "by": by, "why": why, "at": self._clock.now().isoformat()}
                self._files.write(name, _WITHDRAWALS, version, document)
        return self.withdrawn(name, version) or {}

    def withdrawn(self, name: str, version: int) -> Document | None:
        """Return the record of a version's withdrawal (by, why, at); None without one. Raises FlowRefused for a damaged
        one."""
        if version not in self._files.numbers(name, _WITHDRAWALS):
            return None
        return self._files.read(name, _WITHDRAWALS, version, _WITHDRAWN)

    def deployed(self, reference: str) -> DeployedFlow:
        """Return the version `NAME@VERSION`, or with `NAME` the one that serves, checked and assessed again. Raises
        BrokerError if it is not deployed, and FlowRefused if its file is damaged, or if this program finds what the one
        that deployed it did not: red, or yellow and not acknowledged."""
        return self._load(*self.named(reference))

    def named(self, reference: str) -> tuple[str, int]:
        """Return the name and version of `NAME@VERSION`, or with `NAME` the one that serves. Raises BrokerError if it
        is not deployed."""
        found = _REFERENCE.fullmatch(reference)
        if not found:
            raise BrokerError(Code.REQUEST_INVALID, note="a version is named NAME or NAME@VERSION")
        number = int(found[2]) if found[2] else self.serving(found[1])
        return found[1], self._check_deployed(found[1], number, reference)

    def names(self) -> list[str]:
        return [name for name in self._files.tools() if self.numbers(name)]

    def numbers(self, name: str) -> list[int]:
        """Return the deployed versions of a tool, ascending."""
        return self._files.numbers(name, _VERSIONS)

    def serving(self, name: str) -> int | None:
        """Return the version of a tool that serves; None if it has none. Raises FlowRefused if a record is missing."""
        numbers = self._files.numbers(name, _ACTIVATIONS)
        if gap := set(range(1, len(numbers) + 1)) - set(numbers):
            raise refused(self._files.path(name, _ACTIVATIONS, min(gap)), "missing", "restore it")
        if not numbers:
            return None
        version: int = self._files.read(name, _ACTIVATIONS, numbers[-1], _ACTIVATED)["version"]
        return version

    def _check_deployed(self, name: str, number: int | None, reference: str) -> int:
        if number is None or number not in self.numbers(name):
            there = ", ".join(map(str, self.numbers(name))) or "none"
            raise BrokerError(Code.REQUEST_INVALID, note=f"{reference} is not deployed; deployed versions: {there}")
        return number

    def _activate(self, name: str, version: int, by: str) -> None:
        number = len(self._files.numbers(name, _ACTIVATIONS)) + 1
        document = {"version": version, "by": by, "at": self._clock.now().isoformat()}
        self._files.write(name, _ACTIVATIONS, number, document)

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

    def _refuse_other(self, tool: FlowTool, own: list[Any]) -> None:
        there = self._files.read(tool.name, _VERSIONS, tool.version, _MEMBERS)
        refuse_changed(tool, there["digest"])
        if there["policies"] != own:
            hint = f"write version {tool.version + 1}, or deploy it with the policies of before"
            raise FlowRefused([tool.source.problem(("policies",), "this version exists with other policies", hint)])

    def _load(self, name: str, number: int) -> DeployedFlow:
        document = self._files.read(name, _VERSIONS, number, _MEMBERS)
        path, raw = self._files.path(name, _VERSIONS, number), document["specification"].encode()
        if hashlib.sha256(raw).hexdigest() != document["digest"]:
            raise refused(path, *DAMAGED)
        tool = load_tool(raw, f"{name}@{number}.{'yaml' if document['yaml'] else 'json'}")
        if (tool.name, tool.version, document["version"]) != (name, number, number):
            raise refused(path, *DAMAGED)
        policies = tuple(load_policy(json.dumps(each).encode(), str(path)) for each in document["policies"])
        assessment = assess(tool, policies)
        refuse_undeployable(tool, assessment)
        self.acknowledgements.refuse_missing(tool, assessment)
        return DeployedFlow(
            tool=tool,
            assessment=assessment,
            policies=policies,
            by=document["by"],
            at=document["at"],
            withdrawn=self.withdrawn(name, number),
        )


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
    return tool.source.problem(
        ("trigger", "webhookSecret"), what, "name another secret, or write sharedSecret: true in both"
    )
