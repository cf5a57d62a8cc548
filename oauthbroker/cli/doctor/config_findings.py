"""Findings about what the configuration says, for the checks of `oauthbroker doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from oauthbroker.cli.output.tables import counted
from oauthbroker.config import ConfigProblem
from oauthbroker.config.bundle.unresolved_bundle import AppDraft
from oauthbroker.core.sentences import sentence
from oauthbroker.diagnostics.findings import Check, Finding, Severity
from oauthbroker.model.apps import App
from oauthbroker.model.outgoing_proxy import PROXY_RESOLVES, PROXY_VARIABLES
from oauthbroker.model.scope_ceiling import NO_RIGHTS
from oauthbroker.model.settings import Settings


def keyless(settings: Settings) -> list[Finding]:
    """Report callers that are admitted because they are on this machine. Tools run there, too."""
    found = []
    if settings.admin_loopback:
        hint = "Remove `admin.loopback` where tools run on this machine, and behind any proxy."
        found.append(Finding("configuration", "warning", "Operators on this machine need no key.", hint=hint))
    socket = settings.api_socket
    for caller in socket.callers if socket is not None else ():
        roles = " and ".join(sorted(caller.roles))
        what = f"Every process of uid {caller.uid} is {roles} over the Unix socket, without a key."
        found.append(Finding("configuration", "warning", what, hint="Run tools as another user, or use API keys."))
    return found


def misplaced(app: App) -> list[Finding]:
    """Report configured scopes that give no right."""
    what = "{scope} stands in `scopes`: it asks for a refresh token only."
    hint = "Write it under `quirks.alwaysScopes`, where the preset does not have it already."
    return [
        Finding("configuration", "ok", what.format(scope=scope), hint=hint, about=app.name)
        for scope in sorted(NO_RIGHTS & app.scope_set)
    ]


def unverified(draft: AppDraft) -> list[Finding]:
    if not (draft.unverified or draft.unusual_flow):
        return []
    see = f"`oauthbroker providers show {draft.app.provider}`"
    what = f"Relies on {counted(len(draft.unverified), 'unverified fact')} of its preset: {see}."
    if draft.unusual_flow:
        what = f"Its preset does not know whether {draft.app.flow} works there: {see}."
    return [Finding("configuration", "ok", what, hint="Connect once and see.", about=draft.app.name)]


def of_problem(check: Check, severity: Severity, problem: ConfigProblem, *, about: str) -> Finding:
    return Finding(check, severity, sentence(problem.what), hint=sentence(problem.hint), about=about)


def of_proxies(settings: Settings, env: Mapping[str, str]) -> Iterator[Finding]:
    """Report a proxy that the environment names and the broker does not use, and one that looks names up."""
    named = next((name for name in PROXY_VARIABLES if env.get(name)), None)
    if settings.outgoing_proxy is None and named is not None:
        hint = "Write spec.outgoingProxy in the Broker resource if requests leave this network through it."
        yield Finding("configuration", "warning", f"{named} is set here, and the broker does not read it.", hint=hint)
    if settings.outgoing_proxy is not None and settings.outgoing_proxy.resolves:
        hint = "Let it refuse your own networks, or write resolve: here."
        yield Finding("configuration", "warning", PROXY_RESOLVES, hint=hint)
