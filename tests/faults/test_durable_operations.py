"""Each operation of the surface that changes the store has a story in tests/faults/durable_stories.py, or a reason why it needs none.

A story names the operations that it `covers`, and each is run once here to see that it does.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from oauthbroker.admin.admin_actions import Admin
from oauthbroker.authorization.pages_service import PagesService
from oauthbroker.authorization.retry import RetryService
from oauthbroker.broker import Broker
from oauthbroker.cli import COMMANDS, command_of
from oauthbroker.events.port import EventLease
from oauthbroker.grants.grants import Vault
from oauthbroker.grants.importing import Importing
from oauthbroker.plugin_services.plugin_state import PluginState
from oauthbroker.services import Services
from oauthbroker.testing.stores import open_keyring
from oauthbroker.tokens.context import OAuthContext
from oauthbroker.tokens.manager import OAuthManager
from oauthbroker.web.api.call_table import OPERATIONS
from tests.faults.durable_stories import STORIES, Story
from tests.kit.broker_process import Process

COVERED = frozenset(name for story in STORIES.values() for name in story.covers)

READS = frozenset({
    "ApiKeys.check", "ApiKeys.list", "AuditTrail.tail", "Broker.links", "Broker.pending", "Broker.serves_at", "Broker.wait",
    "Connections.find", "Connections.overview", "PagesService.ending", "PagesService.invitation", "PagesService.login_endpoint",
    "PagesService.next_step", "PagesService.outcome", "PagesService.truth", "PluginState.get", "Erasure.find_records", "Events.dead", "Events.settled",
    "Events.unsettled", "FileTrail.tail", "FileTrail.verify", "GrantList.count", "GrantList.find", "GrantList.has_records_of", "GrantList.record", "GrantList.record_of", "GrantList.summary", "GrantList.view", "Grants.check_known", "Importing.is_unverified",
    "Grants.find", "Grants.page", "McpClients.sync", "DeadLetters.dead", "DeadLetters.has", "DeadLetters.states", "Outcomes.concern", "Outcomes.now", "Outcomes.wait",
    "Pending.block", "Pending.block_or_none", "Pending.links", "RetryService.offer", "Secrets.names", "SessionList.find",
    "SessionList.list", "Turns.admit", "Uses.last", "BrowserSessions.invited", "Admin.is_welcome",
    "OAuthContext.first_scopes", "OAuthManager.first_scopes", "McpClients.first_scopes", "OperatorLogin.host", "OperatorLogin.receive",
    "OperatorLogin.url",
})  # fmt: skip

SAME = {
    "OAuthContext.getAccessToken": "OAuthContext.get_access_token",
    "Injector.send": "OAuthContext.get_access_token",
    "OAuthContext.missing_consent": "OAuthContext.get_access_token",
    "OAuthManager.missing_consent": "OAuthContext.get_access_token",
    "OAuthManager.get_access_token": "OAuthContext.get_access_token",
    "OAuthManager.report_rejected": "OAuthContext.report_rejected",
    "EventLease.ack": "Events.settle",
    "EventLease.nack": "Events.settle",
    "Admin.enter": "BrowserSessions.enter",
    "Admin.enter_from_here": "BrowserSessions.enter",
    "Admin.enter_as": "BrowserSessions.enter",
    "BrowserSessions.enter_once": "BrowserSessions.enter",
    "Connections.enter_once": "BrowserSessions.enter",
    "Admin.revoke": "Grants.revoke",
    "Admin.cancel": "Broker.cancel",
    "Admin.retry": "DeadLetters.retry",
    "Admin.drop": "DeadLetters.drop",
    "RetryService.retry_session": "Opening.open_session",
}
"""Another listener to the same operation."""

NOTHING_PROMISED = {
    "AuditWriter.keep_checkpoint": "tests/faults/test_audit_crash.py crashes it at every call",
    "AuditWriter.try_again": "it fills a file without a name beside the log, and changes no entry",
    "ApiKeys.sweep": "a key whose overlap is over is refused by its time, too",
    "Admin.turned_away": "an entry of the audit log",
    "Broker.reload": "a new process reads the configuration anew",
    "Choices.choose": "a choice that is lost is asked for again; its grant was durable before, and its event leaves with it",
    "PagesService.choose": "as `Choices.choose`",
    "EventLease.extended_during": "a lease that is lost is given to another consumer: it promises nothing that lasts",
    "PagesService.depart": "a browser goes to the provider; without its session the callback is refused",
    "PagesService.log_in": "as `depart`: without its session the browser is refused, and presses the link again",
    "EventLease.extend": "without it the lease ends earlier, and the event comes again",
    "EventLease.give_back": "an event that is given back comes again anyway, when its lease ends",
    "Importing.verify": "a refresh, which has a story, or nothing",
    "Life.over": "keeps nothing",
    "McpClients.answered": "has the server asked about a client that it refused, or gives it up; a later refusal does it again",
    "McpClients.recheck": "probes the client again before the next link, in this process or its successor",
    "PluginErasure.erase": "a part of an erasure, which can be repeated",
    "Turns.sweep": "an expired turn is refused with or without its record",
    "Uses.forget": "a part of an erasure",
    "Uses.write": "figures for people, of which minutes may be lost",
    "BrowserSessions.sweep": "an expired visit is refused with or without its record",
}

LISTENERS = {
    "beginTurn": "Turns.begin",
    "endTurn": "Turns.end",
    "getAccessToken": "OAuthContext.get_access_token",
    "reportRejected": "OAuthContext.report_rejected",
    "nextEvent": "Events.lease",
    "ackEvent": "Events.settle",
    "nackEvent": "Events.settle",
    "retryDeadLetter": "DeadLetters.retry",
    "dropDeadLetter": "DeadLetters.drop",
    "cancelAuthSession": "Broker.cancel",
    "confirmAuthSession": "Broker.confirm",
    "linkConnections": "Connections.link",
    "endGrant": "Grants.revoke",
    "importGrants": "ImportRequests.run",
    "eraseSubject": "Broker.erase",
    "narrowTurn": None,  # signs, and keeps nothing
}
"""What each call of the API that is no GET comes to, and `nextEvent`, which is one."""

COMMANDS_TO = {
    "secrets set": "Secrets.put",
    "secrets remove": "Secrets.remove",
    "api-keys create": "ApiKeys.create",
    "api-keys rotate": "ApiKeys.rotate",
    "api-keys remove": "ApiKeys.remove",
    "grants revoke": "Grants.revoke_each",
    "grants erase": "Erasure.erase",
    "grants import": "Importing.import_grant",
    "queues retry": "DeadLetters.retry",
    "queues drop": "DeadLetters.drop",
    "token": "OAuthContext.get_access_token",
    "run": "OAuthContext.get_access_token",
    "login": "OAuthContext.get_access_token",
    "logout": "Grants.revoke",
}
CHANGE_NOTHING = frozenset({
    "check", "doctor", "health", "secrets list", "serve", "api-keys list", "audit verify", "audit tail", "audit name", "grants list",
    "grants show", "sessions list", "sessions show", "queues list", "queues dead", "completion", "providers list",
    "providers show", "store verify", "keys status", "config show", "config schema", "status",
})  # fmt: skip
ELSEWHERE = {
    "init": "tests/faults/test_failing_first_sync.py makes a key and a keyring",
    "demo": "its store is thrown away",
    "keys new": "one file, made as by `init`; opens no store",
    "providers new": "changes nothing in the store; it writes a new file for the operator, or prints it",
    **dict.fromkeys(
        ("keys rotate", "keys reseal", "keys retire", "keys rewrap"),
        "tests/faults/test_rotation_crash.py kills them at each change",
    ),
    "store copy": "tests/story/test_migration.py kills it before and after each of its changes",
    "store export": "changes nothing in the store",
    "store import": "tests/story/test_backup.py kills it before and after each of its changes",
    "store accept-restore": "one change of a mark; tests/story/test_backup.py",
    "store reopen": "one change of a mark; tests/story/test_migration.py",
    "store migrate": "one transaction of the database; tests/story/test_postgres.py lets several callers make it",
}

ROOTS = (
    Broker,
    Services,
    OAuthContext,
    OAuthManager,
    EventLease,
    Vault,
    Importing,
    Admin,
    PagesService,
    PluginState,
    RetryService,
)
PARTS = frozenset({
    "AuthorizationUrls", "Callback", "ClientRegistrations", "Clock", "Connect", "CredentialChecks", "Discovery", "Exchange", "Finish", "LoginClaims", "Logins", "Opening", "OwnerReader", "PendingCodes", "ProtectedResources", "Transport", "Queues", "RefreshTransaction", "Repository", "SharedGrants", "BulkRevocation", "RecordStore", "Overview",
    "Sweep", "Troubles",
})  # fmt: skip
"""Reservations below the surface that its objects hold; no caller outside reaches them."""


def surface(found: type, seen: set[type], depth: int = 2) -> Iterator[str]:
    """The public coroutines of a class and of what its public members hold."""
    if found in seen or not found.__module__.startswith("oauthbroker") or found.__name__ in PARTS:
        return
    seen.add(found)
    for name, member in inspect.getmembers(found, inspect.isfunction):
        if not name.startswith("_") and inspect.iscoroutinefunction(member):
            yield member.__qualname__
    for name, hint in typing.get_type_hints(found).items() if depth else ():
        held = typing.get_origin(hint) or hint
        if not name.startswith("_") and inspect.isclass(held):
            yield from surface(held, seen, depth - 1)


def commands(command: Any, name: str) -> Iterator[str]:
    below = getattr(command, "commands", None)
    if below is None:
        yield name
        return
    for each, found in below.items():
        yield from commands(found, f"{name} {each}")


def test_every_public_coroutine_that_changes_something_has_a_story_or_a_reason():
    seen = set[type]()
    public = {name for root in ROOTS for name in surface(root, seen)}
    reported = READS | COVERED | SAME.keys() | NOTHING_PROMISED.keys()
    assert set() == public - reported, "a public coroutine without a story"
    assert set() == (READS | SAME.keys() | NOTHING_PROMISED.keys()) - public, "it is no part of the surface any more"
    assert set() == {*SAME.values()} - COVERED


def test_every_call_of_the_api_that_changes_something_has_a_story():
    assert LISTENERS.keys() == {each.id for each in OPERATIONS if each.method != "GET"} | {"nextEvent"}
    assert set() == {name for name in LISTENERS.values() if name is not None} - COVERED


def test_every_command_that_changes_something_has_a_story():
    found = {each for name in COMMANDS for each in commands(command_of(name), name)}
    assert {*COMMANDS_TO, *CHANGE_NOTHING, *ELSEWHERE} == found
    assert set() == {*COMMANDS_TO.values()} - COVERED


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_a_story_runs_through_the_operations_it_covers(
    identity_provider: Any, tmp_path: Path, story: Story
) -> None:
    ring = open_keyring(tmp_path)
    process = Process.start(tmp_path / "store", ring, [story.app(identity_provider)], identity_provider.clock.now())
    known, ran = await story.prepare(process, identity_provider), set[str]()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            ran.add(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        await story.do(process, known)
    finally:
        sys.setprofile(None)
    assert set() == {*story.covers} - ran
    assert await story.holds(process, known)
    await process.die()
