"""The entries of flow tools in the broker's audit log. No entry has an input, an output, a key or a secret. Those of a
run name it; its `FlowCalled` says who called."""

from __future__ import annotations

from dataclasses import dataclass

from oauthbroker.plugins import PluginAuditEntry


@dataclass(frozen=True, kw_only=True)
class _OfVersion:  # the first members of each entry
    tool: str
    version: int


@dataclass(frozen=True, kw_only=True)
class _OfRun(_OfVersion):
    run: str


@dataclass(frozen=True, kw_only=True)
class _OfCall(_OfVersion):  # `caller` is an API key or a service, `actor` a person, `subject` the user for whom it is
    caller: str | None
    actor: str | None
    subject: str | None


@dataclass(frozen=True, kw_only=True)
class _OfPerson(_OfVersion):  # `actor` is the account of the person, `by` the name that they give
    actor: str
    by: str


class FlowCalled(_OfCall, PluginAuditEntry, plugin="flowtools"):
    """A call is about to become this run, or to go on with it."""

    run: str


class FlowCallRefused(_OfCall, PluginAuditEntry, plugin="flowtools"):
    """A call was refused before it became a run; `code` says why."""

    code: str


class EffectSent(_OfRun, PluginAuditEntry, plugin="flowtools"):
    """A node is about to send its effect: a request with the tokens of an app, a charge or a refund, a message."""

    node: str
    kind: str
    operation: str | None
    app: str | None
    provider: str | None
    attempt: int


class RunStopped(_OfRun, PluginAuditEntry, plugin="flowtools"):
    """A run is about to be `waiting` or `escalated`, or to end as `succeeded`, `failed` or `unknown`. Of two ends, the
    process of the first one has died before the database kept it."""

    state: str
    code: str | None


class RunDecided(_OfRun, PluginAuditEntry, plugin="flowtools"):
    """A run is about to be `approved`, `declined`, `cancelled` or `retried`. `actor` is the account of the person, `by`
    the name that they give; both are None for an erasure, which cancels."""

    decision: str
    actor: str | None
    by: str | None


class FindingAcknowledged(_OfPerson, PluginAuditEntry, plugin="flowtools"):
    """A person is about to accept the finding `RULE:NODE` of this specification."""

    digest: str
    finding: str


class VersionDeployed(_OfPerson, PluginAuditEntry, plugin="flowtools"):
    """A version is about to be deployed; a tool's first one serves."""

    digest: str


class VersionActivated(_OfPerson, PluginAuditEntry, plugin="flowtools"):
    """A version is about to serve in place of another one."""


class VersionWithdrawn(_OfPerson, PluginAuditEntry, plugin="flowtools"):
    """A version is about to take no new call."""


_OF_RUNS = (FlowCalled, FlowCallRefused, EffectSent, RunStopped, RunDecided)
TYPES = (*_OF_RUNS, FindingAcknowledged, VersionDeployed, VersionActivated, VersionWithdrawn)
