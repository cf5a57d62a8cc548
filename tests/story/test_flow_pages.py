"""The operators' pages of flow tools: versions with their risk, runs, and why one failed. They show no value of a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from sqlalchemy.exc import OperationalError

from oauthbroker.core.errors import Code
from oauthbroker.flowtools.deployment.versions import FlowVersions, versions_of
from oauthbroker.flowtools.entities.database import Database
from oauthbroker.flowtools.running import approvals, journal
from oauthbroker.flowtools.running.auditing import audit_from_threads
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from oauthbroker.web.middleware.security_headers import content_security_policy, security_headers
from tests.kit.callback_pages import assert_error_page
from tests.kit.default_store import default_store
from tests.kit.flow_bundle import call
from tests.kit.flow_pages import ADA, HOSTILE, MARKER, flow_service, furnish, resources_of
from tests.kit.flow_versions import damage
from tests.kit.running_broker import Harness, running, user_app
from tests.story.signed_in import ADMIN, ADMIN_LOGIN, operator_browser
from tests.unit.web.kit import Document

pytestmark = pytest.mark.rule("flow-pages")
HOME = f"{ADMIN}/plugins/flowtools"


@dataclass
class Office:
    """A signed-in operator of a broker that serves the tools of a folder, and the ids of their runs."""

    harness: Harness
    person: Browser
    folder: Path
    versions: FlowVersions
    runs: dict[str, str] = field(default_factory=dict)

    async def open(self, path: str = "") -> Page:
        return await self.person.open(HOME + path)

    async def shown(self, path: str = "") -> str:
        page = await self.open(path)
        assert 200 == page.status, page.text
        return page.text

    async def walk(self) -> dict[str, Page]:
        """Open every page that the first one leads to, within the plug-in."""
        pages, left = dict[str, Page](), [HOME]
        while left:
            url = left.pop().partition("#")[0]
            if url.startswith(HOME) and url not in pages:
                pages[url] = page = await self.person.open(url)
                left += [urljoin(url, each) for each in page.document.links]
        return pages


@pytest.fixture
async def office(identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path) -> AsyncIterator[Office]:
    store = default_store(test_clock)
    ids = await furnish(tmp_path, store)
    more: dict[str, Any] = {"clock": test_clock, "store": store, "plugins": {"flowtools": resources_of(tmp_path)}}
    async with running(identity_provider, [user_app(identity_provider)], **more) as harness:
        versions = versions_of(harness.broker, audit_from_threads(harness.broker.audit))
        yield Office(harness, await operator_browser(harness), tmp_path, versions, ids)


async def test_all_other_browsers_are_sent_to_the_login(office: Office) -> None:
    pages = await office.walk()
    stranger = office.harness.browser()
    for url in pages:
        assert (303, ADMIN_LOGIN) == ((page := await stranger.open(url)).status, page.location)
        assert "Flow tools" not in page.source


async def test_each_page_has_the_headers_of_our_pages_and_the_link_in_the_navigation(office: Office) -> None:
    pages = await office.walk()
    assert len(pages) > 12
    for url, page in pages.items():
        assert 200 == page.status, url
        wanted = {**security_headers(), "content-security-policy": content_security_policy()}
        wanted["referrer-policy"] = "same-origin"
        assert wanted.items() <= {name: page.header(name) for name in wanted}.items()
        assert Document(page.source).one("main"), "read strictly"
    overview = await office.person.open(ADMIN)
    assert HOME in {urljoin(ADMIN, link) for link in overview.document.links}


async def test_no_page_shows_a_value_of_a_call(office: Office) -> None:
    kept = "".join(each.read_bytes().decode("latin-1") for each in office.folder.glob("flows.db*"))
    assert kept.count(MARKER) > 4, "inputs, outputs, keys and rows are in the database"
    assert [] == [url for url, page in (await office.walk()).items() if MARKER in page.source]
    assert MARKER not in office.harness.log.getvalue()


async def test_hostile_names_are_text(office: Office) -> None:
    pages = (await office.walk()).values()
    assert 2 <= sum(HOSTILE in page.text for page in pages), "a description and a message of an assertion"
    for page in pages:
        document = Document(page.source)
        assert [] == document.all("script")
        names = {name for element in document.elements for name in element.attributes}
        assert [] == [name for name in names if name.startswith("on") or name in {"style", "src"}]


async def test_the_first_page_lists_the_tools_with_the_versions_that_serve(office: Office) -> None:
    text = await office.shown()
    assert "note A tool Yellow 2" in text
    assert "Cannot run" in text
    assert "auth.runAs: No declared service" in text
    assert {f"{HOME}/tools/note@1", f"{HOME}/tools/note@2"} <= (await office.walk()).keys()


async def test_a_version_shows_its_findings_who_acknowledged_them_and_the_drawing(office: Office) -> None:
    text = await office.shown("/tools/note@2")
    assert "State serves Deployed by Bea" in text
    assert "deployed, does not serve" in await office.shown("/tools/note@1")
    assert "t \u2192 u" in text
    assert "no-idempotency-key u Yellow" in text
    page = await office.open("/tools/note@2")
    drawing = Document(page.source)
    assert ["note, version 2"] * 2 == [each.text for each in drawing.all("title") if "version" in each.text]
    assert {"t", "u", "v"} <= {each.text for each in drawing.all("text")}
    assert (2, 0) == (page.text.count("Bea"), page.text.count("Ada")), "deployed and acknowledged"


@pytest.mark.rule("001-withdraw")
async def test_a_withdrawn_version_is_marked_and_says_who_withdrew_it(office: Office) -> None:
    await asyncio.to_thread(office.versions.withdraw, "note", 1, by="<b>Eve</b>", why="weak roles")
    assert "note 1 (withdrawn)" in await office.shown()
    text = await office.shown("/tools/note@1")
    assert "State withdrawn, takes no call Withdrawn by <b>Eve</b>" in text
    assert "weak roles" in text


async def test_runs_are_listed_newest_first_and_filtered_by_tool_and_state(office: Office) -> None:
    text = await office.shown("/runs")
    order = [text.index(f"{name} {office.runs[name][:12]}") for name in ("hostile", "computed", "checked", "note")]
    assert sorted(order) == order
    failed = await office.shown("/runs?status=failed&tool=checked")
    shown = {name for name, run in office.runs.items() if run[:12] in failed}
    assert {"checked"} == shown
    assert "failed assertFailed 1 HTTP" in failed
    assert "No runs match" in await office.shown("/runs?status=waiting")
    assert office.runs["note"][:12] in await office.shown("/runs?status=%00&tool=nothing&page=x")


async def test_runs_are_paged(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oauthbroker.flowtools.serving.pages.LINES", 3)
    first, second = await office.open("/runs"), await office.open("/runs?page=2")
    monkeypatch.setattr("oauthbroker.flowtools.serving.pages.LINES", 2)
    assert f"{HOME}/runs?page=2&status=failed" in (await office.open("/runs?status=failed")).document.links
    assert ("Older runs" in first.text, "Newer runs" in first.text) == (True, False)
    assert ("Older runs" in second.text, "Newer runs" in second.text) == (False, True)
    assert office.runs["note"][:12] not in first.text
    assert office.runs["note"][:12] in second.text


async def test_a_failed_run_shows_its_steps_in_order_and_why_it_failed(office: Office) -> None:
    text = await office.shown(f"/runs/{office.runs['checked']}")
    assert "Why it failed the number must be 1 assertFailed An assertion of the flow was not true." in text
    assert "Caller ada" in text
    steps = [text.index(f"{number}. {name} done") for number, name in enumerate(("open", "line", "close"), 1)]
    assert sorted(steps) == steps
    assert "cannot convert string to double" in await office.shown(f"/runs/{office.runs['computed']}")
    assert "Why it failed" not in await office.shown(f"/runs/{office.runs['note']}")


async def test_a_stopped_run_shows_the_decision_that_it_waits_for(office: Office) -> None:
    async with flow_service(office.folder, office.versions) as service:
        run = office.runs["note"]
        with service.database.transaction() as connection:
            found = journal.find_run(connection, id=run)
            assert found is not None
            wait = {"state": journal.ESCALATED, "message": "smallPayments: too much", "due": 1e10, "ended": None}
            connection.execute(journal.RUN.update().where(journal.RUN.c.id == run).values(**wait))
            approvals.ask(connection, run, "smallPayments")
        text = await office.shown(f"/runs/{run}")
        assert "Why it stopped smallPayments: too much" in text
        assert f"oauthbroker flow decline {run}" in text
        assert "smallPayments : asks for a decision" in text
        approvals.decline(service.database, run, by="<b>Bob</b>", account="root", audit=lambda _: None)
    assert "smallPayments : declined <b>Bob</b> (account root)" in await office.shown(f"/runs/{run}")


@pytest.mark.parametrize(
    "path",
    ["/tools/other@1", "/tools/note@9", "/tools/note", "/tools/..@1", "/tools/@", "/runs/" + "0" * 32, "/runs/x"],
)
async def test_an_unknown_version_or_run_is_not_found(office: Office, path: str) -> None:
    assert_error_page(await office.open(path), Code.NOT_FOUND)


async def test_a_damaged_version_is_shown_with_the_reason(office: Office) -> None:
    await damage(office.harness.broker.plugin_state("flowtools"), "note", 1)
    text = await office.shown("/tools/note@1")
    assert "This version cannot be used." in text
    assert "Damaged" in text
    assert "State serves" in await office.shown("/tools/note@2")


async def test_a_tool_whose_record_is_of_a_newer_format_is_listed_with_the_reason(office: Office) -> None:
    await office.harness.broker.plugin_state("flowtools").change("flow/note", lambda there: {**there, "format": 2})
    assert "This version cannot be used." in (text := await office.shown("/tools/note@1"))
    assert "Of a newer format" in text
    assert "note" in await office.shown()


async def test_the_pages_are_korean_for_those_who_read_it(office: Office) -> None:
    office.person.language = "ko"
    text = await office.shown(f"/runs/{office.runs['checked']}")
    assert "실패한 이유" in text
    assert "플로의 단언이 참이 아니었습니다." in text
    assert "플로 도구" in await office.shown()


async def test_a_page_waits_for_no_run_that_writes_and_a_run_for_no_page(office: Office) -> None:
    async with flow_service(office.folder, office.versions) as service:
        with service.database.transaction() as connection:  # SQLite has one writer
            connection.exec_driver_sql("UPDATE flow_run SET notes = '[\"open\"]'")
            assert office.runs["note"][:12] in await office.shown("/runs")
        with service.database.reading() as connection:
            connection.exec_driver_sql("SELECT * FROM flow_run")
            assert (await call(service, "note", {"text": "x", "n": 0}, ADA)).state == "succeeded"


async def test_without_the_database_runs_are_away_and_versions_are_shown(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Database) -> None:
        raise OperationalError(MARKER, None, OSError(MARKER))

    monkeypatch.setattr(Database, "reading", away)
    page = await office.open("/runs")
    assert_error_page(page, Code.STORE_UNAVAILABLE)
    assert MARKER not in page.source + office.harness.log.getvalue()
    assert "note A tool Yellow" in await office.shown()
