"""The pages are held to the product: their code runs, their tables are complete, every name in them exists."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml
from starlette.applications import Starlette

import oauthbroker
from oauthbroker.audit.memory import AuditList
from oauthbroker.cli import COMMANDS
from oauthbroker.config.key_file import KEY_FILE_ENV
from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.core.words import SENTENCES
from oauthbroker.model.apps import Flow
from oauthbroker.model.bundle import Bundle, ToolAuth
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from oauthbroker.model.settings import Settings
from oauthbroker.observability.metrics import Gauge, Metric, Timing
from oauthbroker.observability.tracing import ERROR_TYPE, KEYS, Span
from oauthbroker.providers import presets
from oauthbroker.providers.credentials import credential_presets
from oauthbroker.records import Attempt, Claim, EventType, RefreshState, Retired
from oauthbroker.records.browser_session import BrowserSession
from oauthbroker.records.refresh_state import Ended, Intent
from oauthbroker.records.tombstone import Tombstone
from oauthbroker.records.use import GrantUse
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import Browser, IdentityProvider, TestClock, connect_through
from oauthbroker.wiring import KEY_ENV, open_broker
from oauthbroker.wiring.key_sources import CREDENTIAL
from tests.kit.docs import ROOT, code_blocks, page_text
from tests.kit.running_broker import BASE, Harness, global_app, running
from tests.kit.waiting import until
from tests.unit.protocol.kit import RawServer, says
from tests.unit.records import kit
from tools.quality.case_numbers import RULES
from tools.site.reference.signals import audit_entries

DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*DOCS, ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", ROOT / "store" / "README.md"]
PLUGINS = sorted((ROOT / "oauthbroker").glob("*.py"))
AWAITING = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
TOOLS: dict[str, tuple[ToolAuth, ...]] = {"Tool/slack": (ToolAuth("slack-bot", ("chat:write",)),)}


def python_blocks() -> Iterator[Any]:
    for page in PAGES:
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)):
            yield pytest.param(block, id=f"{page.relative_to(ROOT)} {number}")


@pytest.mark.parametrize("block", [*python_blocks()])
def test_every_python_block_of_every_page_compiles(block: str) -> None:
    compile(block, "a page", "exec", flags=AWAITING)


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    """What the pages assume: an app `slack-bot` in global mode, and a tool that declared it."""
    scopes = ("chat:write", "channels:read")
    app = global_app(identity_provider, "slack-bot", scopes=scopes)
    async with running(identity_provider, [app], clock=test_clock, tools=TOOLS) as harness:
        yield harness


EVENT = {"thread": "1700000000.000100", "channel": "C123", "user": "U234567", "team": "T111"}


@pytest.fixture
def page(harness: Harness) -> dict[str, Any]:
    """The functions of docs/embedding.md, in one namespace, as a runtime would have them."""
    sent: list[tuple[str, str]] = []

    async def call_slack(token: str, said: str) -> str:
        sent.append((token, said))
        return said

    space: dict[str, Any] = {"sent": sent}
    for block in code_blocks("docs/embedding.md"):
        exec(compile(block, "docs/embedding.md", "exec"), space)  # noqa: S102 - the page's code is under test
    space["call_slack"] = call_slack
    space["turn"] = _in_our_spelling(space["turn_for"](EVENT))
    return space


def _in_our_spelling(turn: oauthbroker.Turn) -> oauthbroker.Turn:
    """The page speaks of Slack; the scripted provider's accounts are spelt `idp:`."""
    assert turn.auth is not None
    subjects = {mode: subject.replace("slack:team", "idp:team") for mode, subject in turn.auth.subjects.items()}
    auth = oauthbroker.TurnAuth(turn.auth.actor, subjects)
    return replace(turn, auth=auth)


async def test_the_tool_of_the_readme_gets_a_link_first_and_a_token_then(
    harness: Harness, page: dict[str, Any]
) -> None:
    async with RawServer(says(200, b"hello")) as slack:
        _let_slack_be_at(slack, harness)
        space: dict[str, Any] = {}
        code = code_blocks("README.md")[0].replace("https://slack.com/", f"{slack.url}/")
        exec(compile(code, "README.md", "exec"), space)  # noqa: S102 - the page's code is under test
        oauth = harness.broker.oauth(page["turn"], tool="Tool/slack")
        asked = await space["post_message"](oauth, "hello")
        await connect_through(harness.browser(), harness.idp, asked.split()[-1], "alice")
        assert "hello" == await space["post_message"](oauth, "hello")
        assert slack.requests[0].startswith(b"POST /api/chat.postMessage HTTP/1.1")
        assert b"\r\nAuthorization: Bearer " in slack.requests[0]
        harness.parts.config.adopt(replace(harness.broker.bundle, apps={}))
        assert Code.OAUTH_APP_NOT_FOUND.sentence() == await space["post_message"](oauth, "hello")


def _let_slack_be_at(slack: RawServer, harness: Harness) -> None:
    bundle = harness.broker.bundle
    api = ApiAccess((ApiHost("127.0.0.1", slack.port, "http"),))
    app = replace(bundle.apps["slack-bot"], api=api)
    harness.parts.config.adopt(replace(bundle, apps={"slack-bot": app}))


async def test_the_tools_of_the_page_on_injection_call_the_api(harness: Harness, page: dict[str, Any]) -> None:
    async with RawServer(says(200, b'{"channels": [{"name": "general"}]}')) as slack:
        _let_slack_be_at(slack, harness)
        space: dict[str, Any] = {}
        for block in code_blocks("docs/injection.md"):
            code = block.replace("https://slack.com/", f"{slack.url}/")
            exec(compile(code, "docs/injection.md", "exec"), space)  # noqa: S102 - the page's code is under test
        oauth = harness.broker.oauth(page["turn"])
        link = (await space["whoami"](oauth)).split()[-1]
        with pytest.raises(oauthbroker.AuthorizationRequiredError):
            await space["list_channels"](oauth)
        await connect_through(harness.browser(), harness.idp, link, "alice")
        assert ["general"] == await space["list_channels"](oauth)
        assert "general" in await space["whoami"](oauth)


async def test_the_runtime_of_the_embedding_page_lives_the_whole_story(harness: Harness, page: dict[str, Any]) -> None:
    turn, broker = page["turn"], harness.broker
    oauth = broker.oauth(turn, tool="Tool/slack")
    waiting = await page["post_message"](oauth, "hello")
    assert "waiting" == waiting["status"]
    [block] = await page["context_blocks"](broker, turn)
    assert waiting["link"] == block["items"][0]["authorizationUrl"]
    await connect_through(harness.browser(), harness.idp, waiting["link"], "alice")
    handled: list[dict[str, Any]] = []

    async def handle(event: dict[str, Any]) -> None:
        handled.append(event)

    assert await page["next_event"](broker, "planner", handle)
    assert ["auth.granted"] == [event["type"] for event in handled]
    assert [] == await page["context_blocks"](broker, turn)
    assert {"status": "ok", "sent": "hello"} == await page["post_message"](oauth, "hello")
    assert [("hello", True)] == [(said, harness.idp.is_alive(token)) for token, said in page["sent"]]
    refused = await oauth.get_access_token("slack-bot")
    assert isinstance(refused, oauthbroker.Ready)
    assert {"status": "ok", "sent": "again"} == await page["post_again"](oauth, refused, "again")
    assert refused.access_token.reveal() != page["sent"][-1][0]
    assert harness.idp.is_alive(page["sent"][-1][0])
    team = turn.auth.subjects["global"]
    assert await page["disconnect"](broker, team)
    assert not await page["disconnect"](broker, team)


async def test_an_event_that_cannot_be_handled_comes_again_as_the_page_says(
    harness: Harness, page: dict[str, Any]
) -> None:
    await harness.connect(await harness.ask_link("slack-bot", of=page["turn"]))
    await harness.broker.wait((await _session_id(harness)), timeout=60)

    async def fail(event: dict[str, Any]) -> None:
        raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        await page["next_event"](harness.broker, "planner", fail)
    harness.clock.advance(60)
    delivery = await harness.broker.events.lease("planner")
    assert delivery is not None
    assert 2 == delivery.attempt


async def _session_id(harness: Harness) -> str:
    [session] = [versioned.record async for versioned in harness.repository.sessions()]
    return session.id


async def test_a_blocking_tool_of_the_embedding_page_gets_its_answer(harness: Harness, page: dict[str, Any]) -> None:
    def tool(ctx_oauth: Any) -> str:
        return str(ctx_oauth.get_access_token("OAuthApp/slack-bot", scopes=["chat:write"]).status)

    assert "authorization_required" == await page["blocking_tool"](harness.broker, page["turn"], tool)


async def test_the_ways_without_a_queue_work_as_the_page_says(harness: Harness, page: dict[str, Any]) -> None:
    turn, broker = page["turn"], harness.broker
    asked = await harness.ask_link("slack-bot", of=turn)
    assert await page["never_mind"](broker, asked)
    assert not await page["never_mind"](broker, asked)
    assert "expired" == await page["until_connected"](broker, asked)
    again = await harness.ask_link("slack-bot", of=turn)
    handled: list[str] = []

    async def handle(event: dict[str, Any]) -> None:
        handled.append(event["type"])

    async def work() -> None:
        await harness.connect(again)
        assert "completed" == await page["until_connected"](broker, again)
        await until(lambda: handled)

    await page["with_callbacks"](broker, "planner", handle, work)
    assert ["auth.granted"] == handled
    assert isinstance(await page["other_account"](broker, turn), oauthbroker.AuthorizationRequired)


async def test_the_application_of_the_embedding_page_serves_the_pages(
    identity_provider: IdentityProvider, test_clock: TestClock, page: dict[str, Any]
) -> None:
    base = f"{BASE}/oauth"
    settings = Settings(public_base_url=base, weaken=frozenset({"plainHttpProvider"}))
    app = global_app(identity_provider, "slack-bot")
    app = replace(app, redirect=replace(app.redirect, base_url=base))
    identity_provider.change("client-slack-bot", redirect_uris=(app.redirect.uri,))
    bundle = Bundle(settings, {app.name: app})
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=test_clock)
    application: Starlette = page["application"](
        bundle, path="/oauth", env={}, clock=test_clock, store=store, audit=AuditList()
    )
    async with application.router.lifespan_context(application):
        broker = application.state.broker
        asked = await broker.oauth(page["turn"]).get_access_token("slack-bot")
        assert asked.authorization_url.startswith(f"{base}/connect/")
        person = Browser(apps={BASE: application})
        assert 200 == (await connect_through(person, identity_provider, asked.authorization_url)).status
        assert "ready" == (await broker.oauth(page["turn"]).get_access_token("slack-bot")).status


async def test_a_configuration_that_is_refused_stops_the_application_with_every_problem(
    page: dict[str, Any], tmp_path: Path
) -> None:
    tmp_path.joinpath("a.yaml").write_text("kind: OAuthApp\n")
    application: Starlette = page["application"](str(tmp_path))
    with pytest.raises(SystemExit, match=r"a\.yaml"):
        async with application.router.lifespan_context(application):
            pass


@pytest.mark.case("98")
async def test_an_operator_is_told_what_a_reload_came_to(harness: Harness, page: dict[str, Any]) -> None:
    assert ["nothing changed"] == await page["on_config_change"](harness.broker)
    bundle = harness.broker.bundle
    harness.parts.config.adopt(replace(bundle, apps={}))
    assert [f"changed: {name}" for name in sorted(bundle.apps)] == await page["on_config_change"](harness.broker)
    harness.parts.config.adopt(replace(bundle, settings=replace(bundle.settings, listen_port=1)))
    [problem] = await page["on_config_change"](harness.broker)
    assert "spec.listen.port: Cannot change while the broker runs" in problem


def test_the_readme_counts_presets_and_flows_as_they_are() -> None:
    page = " ".join(page_text("README.md").split())
    assert "presets for more than a hundred [OAuth providers]" in page
    assert len(presets()) > 100
    assert f"[{len(credential_presets())} APIs with keys]" in page
    assert set(get_args(Flow)) == set(re.findall(r"- \[`(\w+)`\]\(docs/flow-", page))


GLOSSARY = re.findall(r"(?m)^\| \*\*(.+)$", page_text("docs/glossary.md"))


@pytest.mark.parametrize("row", GLOSSARY, ids=lambda row: row.partition("**")[0])
def test_a_term_of_the_glossary_names_files_that_exist(row: str) -> None:
    term, meaning, code = row.removesuffix(" |").split(" | ")
    assert all((term, meaning))
    files = [ROOT / "oauthbroker" / name for name in re.findall(r"`([\w/]+\.py)`", code)]
    assert files
    assert [] == [str(file) for file in files if not file.is_file()]


def test_the_glossary_explains_each_term_once() -> None:
    terms = [row.partition("**")[0] for row in GLOSSARY]
    assert sorted(set(terms)) == sorted(terms)
    assert {"grant", "auth session", "subject", "owner", "turn", "lease", "tombstone", "dead letter"} <= set(terms)


def test_every_parameter_of_open_broker_is_on_the_embedding_page() -> None:
    names = set(inspect.signature(open_broker).parameters)
    assert set() == {name for name in names if not re.search(rf"\b{name}\b", page_text("docs/embedding.md"))}


async def test_a_broker_offers_what_the_embedding_page_names_and_nothing_else(harness: Harness) -> None:
    named = set(re.findall(r"(?<![\w.])broker\.([a-z]\w*)", page_text("docs/embedding.md")))
    offered = {*dir(harness.broker), *get_type_hints(oauthbroker.Broker)}
    assert named == {name for name in offered if not name.startswith("_")}


def test_every_variable_is_on_a_page() -> None:
    """Those of fields of the Broker resource follow one rule, and no code spells them out."""
    source = "".join(path.read_text("utf-8") for path in (ROOT / "oauthbroker").rglob("*.py"))
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    missing = set(re.findall(r'"(OAUTHBROKER_[A-Z_]+)"', source)) - set(re.findall(r"OAUTHBROKER_[A-Z_]+", pages))
    assert not missing, f"write {missing} into the table of docs/settings.md, 'Variables'"


def test_every_event_is_on_the_embedding_page_and_no_other() -> None:
    assert set(get_args(EventType)) == set(
        re.findall(r"^\| `(auth\.\w+)` \|", page_text("docs/embedding.md"), re.MULTILINE)
    )


def test_the_operations_page_names_commands_variables_and_counters_that_exist() -> None:
    page = page_text("docs/operations.md")
    for command in re.findall(r"(?m)^oauthbroker ([\w-]+)|`oauthbroker ([\w-]+)", page):
        assert set(command) & set(COMMANDS), command
    for word in (KEY_ENV, KEY_FILE_ENV, CREDENTIAL):
        assert word in page


def test_the_page_on_monitoring_has_every_figure_with_its_labels_and_every_span_and_no_other() -> None:
    page = page_text("docs/how-to/monitoring.md")
    reported = dict(re.findall(r"(?m)^\| `(oauthbroker_\w+)` \| ([\w, ]*) ?\|", page))
    figures = [*Metric, *Timing, *Gauge]
    assert {each.value: ", ".join(each.labels) for each in figures} == {
        name: it.strip() for name, it in reported.items()
    }
    named = set(re.findall(r"oauthbroker_\w+", page + page_text("docs/troubleshooting.md")))
    assert reported.keys() == named
    assert {each.value for each in Span} == set(re.findall(r"(?m)^\| `(oauthbroker\.\w+)` \|", page))
    assert {*KEYS.values(), ERROR_TYPE} <= set(re.findall(r"`([\w.]+)`", page))
    for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL):
        yaml.safe_load(block)


def test_the_page_on_troubleshooting_has_every_line_that_refreshes_write_into_the_log() -> None:
    """Also the tasks that tend them, and every way in which a grant remembers that its refreshes have ended."""
    page = page_text("docs/troubleshooting.md")
    source = "".join(path.read_text("utf-8") for path in (ROOT / "oauthbroker" / "refresh").glob("*.py"))
    lines = re.findall(r'log\.warning\(\s*"([^":]+)', source)
    assert len(lines) > 5
    tasks = re.findall(r'"(refreshes [^"]+)":', page_text("oauthbroker/wiring/running.py"))
    assert 2 == len(tasks)
    assert set() == {line for line in (*lines, *tasks) if f"`{line}`" not in page}
    assert set(get_args(Ended)) - {""} == set(re.findall(r"`ended: (\w+)`", page))


def test_the_pages_name_codes_and_reasons_that_exist() -> None:
    for name in (str(page.relative_to(ROOT)) for page in DOCS if page.stem != "providers"):
        said = set(re.findall(r"`([a-z]+(?:[A-Z][a-z]+)+)`", page_text(name)))
        looks_like_a_code = {word for word in said if _ENDS.search(word)}
        assert looks_like_a_code <= {code.value for code in Code} | set(SENTENCES["en"]["invitations"]) | _NOT_CODES, (
            name
        )


_ENDS = re.compile(
    r"(Invalid|Mismatch|Unknown|Expired|Used|Failed|Denied|Uncertain|Malformed|Unavailable|Forbidden|Exceeded|"
    r"Unsatisfiable|Corrupt|Misplaced|Unsupported|Misconfigured|Unreachable|Limited|Locked|Permissions)$"
)
_NOT_CODES = {"refreshFailed"}


def test_the_divergences_pages_speak_of_every_rule_and_of_every_rfc_that_the_code_names() -> None:
    """A change that builds on another RFC has to say where we differ from it, or that we do not."""
    sections = {number.partition("-")[0] for number in RULES if number.startswith("12.5")}
    specifications = page_text("docs/divergences-specifications.md")
    assert set() == {number for number in sections if f"**{number}" not in specifications}
    page = page_text("docs/divergences.md") + specifications
    code = "".join(path.read_text("utf-8") for path in (ROOT / "oauthbroker").rglob("*.py"))
    assert set() == set(re.findall(r"RFC (\d+)", code)) - set(re.findall(r"\d{4}", page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text("utf-8")):
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        if anchor:
            text = file.read_text("utf-8")
            headings, own = re.findall(r"(?m)^#+ (.+)$", text), re.findall(r'<a id="([\w-]+)"></a>', text)
            assert anchor in {*own} | {
                re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in headings
            }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_keeps_to_a_width_that_can_be_reviewed(page: Path) -> None:
    """Prose may run on where it stands in a table or in one paragraph a line; code may not."""
    for block in re.findall(r"```(?:python|sh|yaml)\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        assert all(len(line) <= 130 for line in block.splitlines()), block


def test_the_page_on_the_format_names_every_member_of_the_records() -> None:
    """Each is there once it has something in it: a grant with all it may remember, a session of either flow."""
    now = kit.CREATED
    refresh_state = RefreshState(
        intent=Intent("a", now), spare=Secret("spare"), ended="dead", refused_at=now, asked=("read",), forced=(now,)
    )
    remembered = Retired(now, (Secret("refresh"),), (Secret("access"),))
    elsewhere = (replace(remembered, registration="r", tell_after=now),)
    full = kit.grant(
        refresh_state=refresh_state, retired=remembered, elsewhere=elsewhere, tell_after=now, token_binding="x"
    )
    pending_code = kit.session(presses=1, pending_code=kit.pending_code(), claim=Claim("me", now, confirmed=True))
    browser_session, use = (
        BrowserSession(locator="l", pages="admin", created_at=now, expires_at=now, subjects=(("user", "u"),)),
        GrantUse.first("g", "planner", None, now),
    )
    tombstone = Tombstone(of="turns", ends_at=now, keep_until=now, since=now)
    records = (
        full,
        pending_code,
        kit.session(device=kit.device(), attempt=Attempt.none()),
        browser_session,
        use,
        tombstone,
    )
    prose = re.sub(r"```.*?```", "", page_text("docs/store-records.md"), flags=re.DOTALL)
    named = set(re.findall(r"[A-Za-z]+", " ".join(re.findall(r"`([^`]+)`", prose))))
    printed = {"codeVerifier", "codeChallenge", "method", "requestedScopes", "subjectMode", "name"}  # 12.5.4, 12.5.5
    for record in records:
        missing = {*_members(json.loads(record.to_plaintext()))} - named
        assert missing <= printed, type(record)


def _members(value: Any) -> Iterator[str]:
    """Every member's name; the members of `resume` are the runtime's."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _members(inner) if name != "resume" else ()


@pytest.mark.parametrize("name", audit_entries())
def test_the_audit_page_has_every_member_of_an_entry_also_of_plugins(name: str) -> None:
    [members] = re.findall(rf"(?m)^\| `{name}` \| .* \| ([^|]*) \|$", page_text("docs/audit.md"))
    assert [field.name for field in fields(audit_entries()[name])] == re.findall(r"`(\w+)`", members)


def test_the_audit_page_has_no_other_entry() -> None:
    named = re.findall(r"(?m)^\| `((?:[a-z]+\.)?[A-Z]\w+)` \| .* \| [^|]* \|$", page_text("docs/audit.md"))
    assert [*audit_entries()] == sorted(named, key=[*audit_entries()].index)


def test_the_page_of_google_adk_names_the_session_service_of_its_program() -> None:
    """The one of ADK's own that works as installed: others want packages that ADK does not bring."""
    program = (ROOT / "examples" / "frameworks" / "google_adk_agent.py").read_text("utf-8")
    named = re.search(r"from (google\.adk\.sessions\S+) import (\w+)", program)
    assert named is not None
    page = page_text("docs/integrations/google-adk.md")
    assert [] == [each for each in named.groups() if f"`{each}" not in page]
