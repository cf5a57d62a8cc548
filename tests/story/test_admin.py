"""`/admin`: who comes in, the lists that operators see, and the grants that they end. Other callers can do neither."""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.audit import CallRefused, ConnectFailed, DeadLetterChanged, OperatorEntered, PageAction, TokenRefreshed
from oauthbroker.core.errors import Code
from oauthbroker.model.token_results import AuthorizationRequired, Ready
from oauthbroker.testing import Browser, IdentityProvider, TestClock
from oauthbroker.testing.browser import Page
from tests.kit import planted_records
from tests.kit.callback_pages import HOST, assert_error_page
from tests.kit.running_broker import ALICE, BASE, BOB, TEAM, Harness, global_app, public, running, turn, user_app
from tests.story.signed_in import (
    ADMIN,
    ADMIN_LOGIN,
    PROXY_HEADERS,
    connections_browser,
    operator_browser,
    submit_form,
    try_key,
)
from tests.unit.web import kit

PLACES = ("", "/grants", "/waiting", "/queues", "/circuits", "/audit", "/audit.csv")


@pytest.fixture
async def harness(identity_provider: IdentityProvider, test_clock: TestClock) -> AsyncIterator[Harness]:
    """Where operators on this machine need no key."""
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    settings = public(BASE, admin_loopback=True)
    async with running(identity_provider, apps, clock=test_clock, settings=settings) as harness:
        yield harness


async def is_out(person: Browser) -> bool:
    """Every page sends to the entrance."""
    pages = [await person.open(ADMIN + place) for place in PLACES]
    return all((303, ADMIN_LOGIN) == (page.status, page.location) for page in pages)


# who comes in


async def test_an_operators_key_opens_the_pages_and_is_kept_nowhere(harness: Harness) -> None:
    person = await operator_browser(harness)
    for place in PLACES:
        assert 200 == (await person.open(ADMIN + place)).status
    (entered,) = [entry for entry in harness.audit.entries if isinstance(entry, OperatorEntered)]
    assert "ops" == entered.name
    _, key = await harness.broker.api_keys.create("later", {"operator"})
    again = await try_key(harness, key.reveal())
    held = again.cookies["oab-admin"].value + "".join(
        [str(entry.body) async for entry in harness.store.scan("browsersessions")]
    )
    assert not [part for part in key.reveal().split(".")[1:] if part in again.cookies["oab-admin"].value]
    assert key.reveal().rpartition(".")[2] not in held


@pytest.mark.parametrize("roles", [{"runtime"}])
async def test_a_runtimes_key_is_refused(harness: Harness, roles: Any) -> None:
    _, key = await harness.broker.api_keys.create("runtime", roles)
    person = await try_key(harness, key.reveal())
    assert 403 == person.page.status
    assert "does not have the role operator" in person.page.text
    assert await is_out(person)


@pytest.mark.parametrize("key", ["", "oabk.x.y", "oabk." + "A" * 22 + "." + "B" * 43, "Bearer x", "x" * 5000])
async def test_a_wrong_key_is_refused(harness: Harness, key: str) -> None:
    person = await try_key(harness, key)
    assert 401 == person.page.status
    assert "This key is not valid" in person.page.text
    assert await is_out(person)


async def test_a_turn_token_is_no_key(harness: Harness) -> None:
    begun = await harness.broker.turns.begin(turn())
    assert 401 == (await try_key(harness, begun.token.reveal())).page.status


async def test_a_removed_or_expired_key_ends_its_browser_sessions_at_once(harness: Harness) -> None:
    key, text = await harness.broker.api_keys.create("ops", {"operator"})
    person = await try_key(harness, text.reveal())
    assert 200 == (await person.open(ADMIN)).status
    await harness.broker.api_keys.remove(key.id)
    assert await is_out(person)
    _, short = await harness.broker.api_keys.create("short", {"operator"}, lives_seconds=60)
    person = await try_key(harness, short.reveal())
    assert 200 == (await person.open(ADMIN)).status
    harness.clock.advance(61)
    assert await is_out(person)


def turned_away(harness: Harness) -> list[CallRefused]:
    return [entry for entry in harness.audit.entries if isinstance(entry, CallRefused)]


async def test_logins_that_fail_are_counted_and_a_minute_later_forgotten(harness: Harness) -> None:
    person = harness.browser()
    for _ in range(20):
        await try_key(harness, "wrong", person)
        assert 401 == person.page.status
    await try_key(harness, "wrong", person)
    assert_error_page(person.page, Code.RATE_LIMITED)
    assert person.page.header("retry-after")
    assert [
        CallRefused(route="POST /admin/login", code="unauthenticated", caller=None, agent=None, tool=None)
    ] * 20 == turned_away(harness)
    harness.clock.advance(61)
    await try_key(harness, "wrong", person)
    assert 401 == person.page.status


@pytest.mark.case("91")
async def test_failed_sign_ins_do_not_lock_an_operator_out(harness: Harness) -> None:
    _, key = await harness.broker.api_keys.create("ops", {"operator"})
    stranger = harness.browser()
    for _ in range(30):
        await try_key(harness, "wrong", stranger)
    assert_error_page(stranger.page, Code.RATE_LIMITED)
    assert 303 == (await try_key(harness, key.reveal())).page.status, "from the same address"


async def test_a_refused_sign_in_is_in_the_audit_log(harness: Harness) -> None:
    _, key = await harness.broker.api_keys.create("runtime", {"runtime"})
    await try_key(harness, key.reveal())
    assert [
        CallRefused(route="POST /admin/login", code="notAllowed", caller=None, agent=None, tool=None)
    ] == turned_away(harness)


async def test_on_this_machine_no_key_is_needed_where_the_settings_say_so(harness: Harness) -> None:
    person = harness.browser()
    page = await person.open(ADMIN_LOGIN)
    assert "Continue without a key" in page.text
    await submit_form(person, "/enter")
    assert (303, ADMIN) == (person.page.status, person.page.location)
    assert 200 == (await person.follow()).status
    (entered,) = [entry for entry in harness.audit.entries if isinstance(entry, OperatorEntered)]
    assert "loopback" == entered.name


async def test_elsewhere_a_key_is_needed(identity_provider: IdentityProvider, test_clock: TestClock) -> None:
    async with running(identity_provider, [user_app(identity_provider)], clock=test_clock) as harness:
        person = harness.browser()
        assert "Continue without a key" not in (await person.open(ADMIN_LOGIN)).text
        field = dict(person.page.form("csrf").fields)["csrf"]
        answer = await person.post(f"{ADMIN}/enter", [("csrf", field)], initiator=person.page)
        assert answer.status == 403
        assert await is_out(person)


@pytest.mark.case("85")
@pytest.mark.parametrize(
    ("host", "client", "header"),
    [
        (HOST, "192.0.2.7", ""),  # another machine
        (HOST, "not an address", ""),
        ("broker.example", "127.0.0.1", ""),  # a proxy on this machine, asking for a public name
        *[(HOST, "127.0.0.1", header) for header in PROXY_HEADERS],  # or asking for ours
        (HOST, "127.0.0.9", ""),  # a proxy that the settings know, with any header
    ],
)
async def test_who_is_not_here_needs_a_key(
    identity_provider: IdentityProvider, test_clock: TestClock, host: str, client: str, header: str
) -> None:
    names, proxies = ("broker.example",), ("127.0.0.9",)
    settings = public(BASE, admin_loopback=True, allowed_hosts=names, trusted_proxies=proxies)
    async with running(
        identity_provider, [user_app(identity_provider)], clock=test_clock, settings=settings
    ) as harness:

        async def elsewhere(scope: Any, receive: Any, send: Any) -> None:
            headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
            headers += [(b"host", host.encode()), *([(header.encode(), b"203.0.113.9")] if header else [])]
            given = {"client": (client, 1), "headers": headers}
            await harness.broker.asgi.app({**scope, **given}, receive, send)

        person, inside = Browser(apps={BASE: elsewhere}), harness.browser()
        assert "Continue without a key" not in (await person.open(ADMIN_LOGIN)).text
        form = next(form for form in (await inside.open(ADMIN_LOGIN)).document.forms if form.action.endswith("/enter"))
        person.cookies.set("oab", inside.cookies["oab"].value, "127.0.0.1")
        assert 403 == (await person.post(f"{ADMIN}/enter", form.fields, initiator=person.page)).status
        assert ["POST /admin/enter"] == [entry.route for entry in turned_away(harness)]
        await submit_form(inside, "/enter")
        person.cookies.set("oab-admin", inside.cookies["oab-admin"].value, "127.0.0.1")
        assert await is_out(person), "and a cookie that was given here is of no use there"


@pytest.mark.case("85")
@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8420", "localhost.evil.example", "", "127.0.0.1"]
)
@pytest.mark.parametrize("path", ["/admin", "/admin/login", "/admin/grants", "/connections"])
async def test_a_page_under_another_host_name_is_refused(harness: Harness, host: str, path: str) -> None:
    """DNS rebinding: an attacker's name that leads to this machine. The browser sends no cookie of ours along, and
    we do not even look."""
    person = await operator_browser(harness)
    cookie = f"oab-admin={person.cookies['oab-admin'].value}"
    answer = await kit.ask(
        harness.broker.asgi.app, path, host=host, headers=[("cookie", cookie), ("accept", "text/html")]
    )
    assert 421 == answer.status
    assert "location" not in answer.headers
    assert "evil" not in answer.text


async def test_who_signs_out_is_out(harness: Harness) -> None:
    person = await operator_browser(harness)
    cookie = person.cookies["oab-admin"].value
    assert f"{ADMIN}/left" == (await submit_form(person, "/leave")).location
    assert "Signed out" in (await person.follow()).text
    assert await is_out(person)
    person.cookies.set("oab-admin", cookie, "127.0.0.1")
    assert await is_out(person)


async def test_a_browser_session_ends_after_half_an_hour(harness: Harness) -> None:
    person = await operator_browser(harness)
    harness.clock.advance(30 * 60)
    assert await is_out(person)


async def test_a_person_with_a_connections_page_is_no_operator_and_the_other_way_round(harness: Harness) -> None:
    person, url = harness.browser(), (await harness.broker.connections.link({"user": ALICE}))[0]
    await person.open(url)
    await person.submit()
    person.cookies.set("oab-admin", person.cookies["oab-connections"].value, "127.0.0.1")
    assert await is_out(person)
    layout = await operator_browser(harness)
    layout.cookies.set("oab-connections", layout.cookies["oab-admin"].value, "127.0.0.1")
    assert 401 == (await layout.open(f"{BASE}/connections")).status


# reading


async def test_the_overview_has_a_light_for_every_app(harness: Harness) -> None:
    await planted_records.grant(harness, "mail", ALICE)
    await planted_records.dead_grant(harness, "files", ALICE)
    planted_records.open_circuit(harness, "team")
    page = (await operator_browser(harness)).page
    rows = {row[0]: row for row in table(page)}
    assert "Healthy" in rows["mail Mail"]
    assert "Needs attention" in rows["files Files"]
    assert "Failing" in rows["team Team"]
    assert "appMisconfigured" in " ".join(rows["team Team"])
    assert "3 apps, 1 grant alive." in page.text


def table(page: Page) -> list[list[str]]:
    """The texts of each row."""
    document = kit.Document(page.source)
    rows: list[list[str]] = []
    for element in document.elements:
        if element.attributes.get("role") == "rowheader":
            rows.append([" ".join(element.text.split())])
        elif element.attributes.get("role") == "cell" and rows:
            rows[-1].append(" ".join(element.text.split()))
    return rows


async def test_grants_are_found_by_subject_app_and_state_fifty_a_page(harness: Harness) -> None:
    for number in range(101):
        await planted_records.grant(harness, "mail", f"idp:user:U9{number:04d}")
    await planted_records.dead_grant(harness, "files", ALICE)
    await planted_records.ended_grant(harness, "files", BOB)
    await planted_records.grant(harness, "mail", ALICE, account="acc-1")
    person = await operator_browser(harness)
    for query, count, shown in [
        ("", 104, 50),
        ("?page=3", 104, 4),
        ("?page=99", 104, 4),
        ("?page=0", 104, 50),
        ("?page=x", 104, 50),
        ("?app=files", 2, 2),
        ("?app=files&health=again", 1, 1),
        ("?health=ended", 1, 1),
        ("?q=u90007", 1, 1),
        ("?q=acc-1", 1, 1),
        ("?q=mail%40acc-1", 1, 1),
        ("?q=mail%40acc-1&app=files", 0, 0),
        ("?q=joe%40example", 0, 0),
        ("?q=U9&health=again", 0, 0),
        ("?app=nothing", 0, 0),
        ("?health=%27%22%3C", 0, 0),
    ]:
        page = await person.open(f"{ADMIN}/grants{query}")
        assert (f"{count} found" in page.text, shown) == (True, len(table(page))), query


async def test_a_grants_page_tells_all_but_its_tokens(harness: Harness) -> None:
    grant = await planted_records.grant(harness, "mail", ALICE)
    harness.parts.uses.note(grant.id, "researcher", "Tool/mail", harness.clock.now())
    page = await (await operator_browser(harness)).open(f"{ADMIN}/grants/{grant.id}")
    for words in (
        ALICE,
        "researcher",
        "Tool/mail",
        grant.id,
        harness.broker.audit_trail.name("grant", grant.id),
        "<bdi>read<",
    ):
        assert words in page.source, words
    assert "planted-" not in page.source
    assert_error_page(await harness.browsers[-1].open(f"{ADMIN}/grants/sha256:{'0' * 64}"), Code.GRANT_NOT_FOUND)


async def test_who_waits_is_shown_without_the_link_and_can_be_cancelled(harness: Harness) -> None:
    asked = await harness.ask_link()
    person = await operator_browser(harness)
    page = await person.open(f"{ADMIN}/waiting")
    assert [[ALICE, "mail", "planner", "not begun"]] == [row[:4] for row in table(page)]
    assert asked.authorization_url.rpartition("/")[2] not in page.source
    assert "cancelled" in str((await submit_form(person, "/cancel")).location)
    assert "The request was withdrawn" in (await person.follow()).text
    assert "No requests are open" in person.page.text
    assert_error_page(await harness.browser().open(asked.authorization_url), Code.STATE_UNKNOWN)


async def test_a_dead_letter_is_tried_again_or_dropped(harness: Harness) -> None:
    first, second = await planted_records.dead_letter(harness, 1), await planted_records.dead_letter(harness, 2)
    person = await operator_browser(harness)
    page = await person.open(f"{ADMIN}/queues")
    assert ["planner", "0", "0", "2", "none"] == table(page)[0]
    assert ["auth.granted", "auth.granted"] == [row[0].split()[0] for row in table(page)[1:]]
    for form in page.document.forms:
        if form.action.endswith("/retry") and ("event", first.id) in form.fields:
            await person.submit(form=form)
    assert "The event will be tried again" in (await person.follow()).text
    page = await person.open((await drop_links(person, second.id))[0])
    assert "Drop this event permanently?" in page.text
    await submit_form(person, "/drop")
    assert "The event was dropped" in (await person.follow()).text
    assert [] == await harness.broker.events.dead("planner")
    event = await harness.event()
    assert event is not None
    assert first.id == event["eventId"]
    assert f"{ADMIN}/queues?done=nothing" == (await person.open(f"{ADMIN}/queues/drop?queue=eA==&event=x")).location
    said = [entry for entry in harness.audit.entries if isinstance(entry, PageAction | DeadLetterChanged)]
    assert [("retryEvent", first.id), ("dropEvent", second.id)] == [
        (each.action, each.target) for each in said if isinstance(each, PageAction)
    ]
    assert [DeadLetterChanged(agent="planner", event=first.id, action="retried"), DeadLetterChanged(agent="planner", event=second.id, action="dropped")] == [
        said[1], said[3],
    ]  # fmt: skip


@pytest.mark.parametrize("agent", ["a\r\nb", "a\x00b", "a\nb", " a ", "\U0001f600\u202e"], ids=ascii)
async def test_a_queue_is_found_again_under_any_agent_name(harness: Harness, agent: str) -> None:
    """Browsers write CR LF for each line break of a field, and other characters as they like."""
    first, second = (
        await planted_records.dead_letter(harness, 1, agent),
        await planted_records.dead_letter(harness, 2, agent),
    )
    person = await operator_browser(harness)
    page = await person.open(f"{ADMIN}/queues")
    (form,) = [each for each in page.document.forms if ("event", first.id) in each.fields]
    assert all(re.fullmatch(r"[A-Za-z0-9_=.-]*", value) for _, value in form.fields)
    await person.submit(form=form)
    assert "The event will be tried again" in (await person.follow()).text
    await person.open((await drop_links(person, second.id))[0])
    await submit_form(person, "/drop")
    assert "The event was dropped" in (await person.follow()).text


@pytest.mark.parametrize("queue", ["", "x", "\u00e4", "_w==", "planner"])
async def test_a_queue_that_is_none_has_no_letter_to_drop(harness: Harness, queue: str) -> None:
    letter = await planted_records.dead_letter(harness)
    person = await operator_browser(harness)
    await person.open((await drop_links(person, letter.id))[0])
    (form,) = [each for each in person.page.document.forms if each.action.endswith("/drop")]
    page = await person.submit({"queue": queue}, form=form)
    assert f"{ADMIN}/queues?done=nothing" == page.location
    assert [letter.id] == [each["eventId"] for each in await harness.broker.events.dead("planner")]


async def drop_links(person: Browser, event: str) -> list[str]:
    return [link for link in (await person.open(f"{ADMIN}/queues")).document.links if event in link]


async def test_open_circuits_say_why_and_for_how_long(harness: Harness) -> None:
    planted_records.open_circuit(harness, "mail")
    person = await operator_browser(harness)
    (row,) = table(await person.open(f"{ADMIN}/circuits"))
    assert ["mail all grants", "token refresh", "appMisconfigured", "1", "30 s", "1"] == row
    harness.clock.advance(31)
    assert "No circuit is open" in (await person.open(f"{ADMIN}/circuits")).text


async def test_each_worker_shows_the_circuits_of_all(
    identity_provider: IdentityProvider, test_clock: TestClock, tmp_path: Path
) -> None:
    apps = [user_app(identity_provider), user_app(identity_provider, "files"), global_app(identity_provider)]
    settings = public(BASE, admin_loopback=True)
    shared: Any = {"clock": test_clock, "settings": settings, "metrics_folder": tmp_path / "metrics"}
    async with (
        running(identity_provider, apps, **shared) as asked,
        running(identity_provider, apps, **shared) as other,
    ):
        planted_records.open_circuit(other, "mail")
        planted_records.open_circuit(other, "files", Code.PROVIDER_RATE_LIMITED)
        planted_records.open_circuit(asked, "files", Code.PROVIDER_RATE_LIMITED)
        person = await operator_browser(asked)
        rows: list[list[str]] = []
        async with asyncio.timeout(60):
            while len(rows) < 2 or "2" not in {row[5] for row in rows}:  # each leaves them within a second
                await asyncio.sleep(0.1)
                rows = table(await person.open(f"{ADMIN}/circuits"))
        assert {"mail all grants": "1", "files all grants": "2"} == {row[0]: row[5] for row in rows}
        healths = {row[0]: row[1] for row in table(await person.open(ADMIN))}
        assert ("Failing", "Needs attention", "Healthy") == (
            healths["mail Mail"],
            healths["files Files"],
            healths["team Team"],
        )
        test_clock.advance(120)
        assert "No circuit is open" in (await person.open(f"{ADMIN}/circuits")).text


async def test_the_audit_log_is_read_newest_first_by_app_and_type(harness: Harness) -> None:
    await harness.connected()
    await harness.connected("files")
    person = await operator_browser(harness)
    types = [row[0] for row in table(await person.open(f"{ADMIN}/audit"))]
    assert "OperatorEntered" == types[0]
    page = await person.open(f"{ADMIN}/audit?app=files&type=Connected")
    assert ["Connected"] == [row[0] for row in table(page)]
    assert "files" in table(page)[0][2]
    assert "No entries match" in (await person.open(f"{ADMIN}/audit?type=%3Cscript%3E")).text


async def test_the_audit_log_tells_each_lines_moment_and_is_narrowed_to_some(harness: Harness) -> None:
    first = harness.clock.now()
    await harness.connected()
    harness.clock.advance(3600)
    await harness.connected("files")
    person, grant = await operator_browser(harness), await harness.grant()
    assert grant is not None
    later = f"{first + timedelta(minutes=30):%Y-%m-%dT%H:%M}"
    for query, apps in [
        ("", {"mail", "files"}),
        (f"since={later}", {"files"}),
        (f"until={later}:00", {"mail"}),
        (f"since={later}&until={later}", set[str]()),
        (f"until={first:%Y-%m-%dT%H:%M:%S}", {"mail"}),
        ("since=yesterday&until=99999-01-01T00:00", {"mail", "files"}),
        (f"grant={grant.id}", {"mail"}),
        (f"grant={harness.broker.audit_trail.name('grant', grant.id)}", {"mail"}),
        (f"grant=sha256:{'0' * 64}", set[str]()),
        (f"subject={ALICE}", {"mail", "files"}),
        (f"subject={BOB}", set[str]()),
        (f"subject={ALICE}&grant={grant.id}", {"mail"}),
    ]:
        page = await person.open(f"{ADMIN}/audit?type=Connected&{query}")
        assert apps == {app for row in table(page) for app in ("mail", "files") if f"app {app}" in row[2]}, query
    page = await person.open(f"{ADMIN}/audit?type=Connected&app=mail&since={first:%Y-%m-%dT%H:%M}")
    assert f"{first:%Y-%m-%d %H:%M:%S} UTC" in table(page)[0][1]
    assert f'value="{first:%Y-%m-%dT%H:%M}:00"' in page.source, "the search stays in the form"


async def test_the_log_of_a_subject_has_its_ended_grants_and_is_found_by_its_accounts_name(harness: Harness) -> None:
    await harness.connected()
    await harness.change_grant(account_name="octocat")
    person = await operator_browser(harness)
    found = [table(await person.open(f"{ADMIN}/audit?type=Connected&subject={it}")) for it in (ALICE, "Octocat")]
    assert [1, 1] == [len(rows) for rows in found]
    assert "octocat" in found[0][0][2]
    assert "octocat" in table(await person.open(f"{ADMIN}/grants?q=octo"))[0][0]
    await harness.broker.erase(ALICE)
    harness.clock.advance(60)
    assert 1 == len(table(await person.open(f"{ADMIN}/audit?type=Connected&subject={ALICE}")))


HOSTILE_CELLS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\uff1d1", 'a","=1', "a\n=1", "\u202e=1"]


async def test_the_log_is_a_csv_file_of_the_same_lines_without_formulas(harness: Harness) -> None:
    await harness.connected()
    await harness.change_grant(account_name="=HYPERLINK(1)")
    for text in HOSTILE_CELLS:
        harness.audit.write(ConnectFailed(app=text, session="as-x", code="tokenResponseInvalid"), harness.clock.now())
    person = await operator_browser(harness)
    page = await person.open(f"{ADMIN}/audit?type=ConnectFailed")
    link = next(each for each in page.document.links if "audit.csv" in each)
    assert link == f"{ADMIN}/audit.csv?type=ConnectFailed"
    file = await person.open(link)
    assert 'attachment; filename="audit.csv"' == file.header("content-disposition")
    assert ("text/csv; charset=utf-8", "no-store") == (file.header("content-type"), file.header("cache-control"))
    rows = list(csv.DictReader(io.StringIO(file.body.decode("utf-8-sig"), newline="")))
    assert {"ConnectFailed"} == {row["type"] for row in rows}
    assert len(HOSTILE_CELLS) == len(rows) == len(table(page))
    assert sorted(HOSTILE_CELLS) == sorted(row["app"].removeprefix("'") for row in rows)
    every = (await person.open(f"{ADMIN}/audit.csv")).body.decode("utf-8-sig")
    cells = [cell for row in csv.reader(io.StringIO(every, newline="")) for cell in row]
    assert [] == [cell for cell in cells if cell.lstrip(" ")[:1] in set("=+-@\t\r\n\uff1d") - {""}]
    assert (True, True) == ("'=HYPERLINK(1)" in cells, ALICE in cells)


async def test_the_file_is_for_operators_alone(harness: Harness) -> None:
    await harness.connected()
    for person in (harness.browser(), await connections_browser(harness, {"user": ALICE})):
        page = await person.open(f"{ADMIN}/audit.csv")
        assert (303, f"{ADMIN}/login") == (page.status, page.location)


async def test_a_persons_own_no_is_no_trouble_of_the_app(harness: Harness) -> None:
    for name in ("mail", "files"):
        asked = await harness.ask_link(name)
        person = harness.browser()
        await person.open(asked.authorization_url)
        await person.submit({"decision": "cancel"})
    harness.audit.write(ConnectFailed(app="files", session="as-x", code="tokenResponseInvalid"), harness.clock.now())
    rows = {row[0]: row for row in table((await operator_browser(harness)).page)}
    assert ("Healthy", "none") == (rows["mail Mail"][1], rows["mail Mail"][-1])
    assert "Needs attention" in rows["files Files"]


async def test_a_line_of_the_audit_log_leads_to_the_grant_it_speaks_of_while_there_is_one(harness: Harness) -> None:
    await harness.connected()
    grant = await harness.grant()
    assert grant is not None
    person, link = await operator_browser(harness), f'href="{ADMIN}/grants/{grant.id}"'
    page = await person.open(f"{ADMIN}/audit?type=TokenIssued")
    assert (1, True) == (page.source.count(link), ALICE in page.text)
    await person.open(f"{ADMIN}/grants/{grant.id}/revoke")
    await submit_form(person, "/revoke")
    page = await person.open(f"{ADMIN}/audit?type=PageAction")
    assert (1, True) == (page.source.count(link), ALICE in page.text), "what an operator did it to"
    page = await person.open(f"{ADMIN}/audit?type=OperatorEntered")
    assert (0, False) == (page.source.count("/grants/sha256:"), ALICE in page.text)
    harness.audit.write(TokenRefreshed(app="mail", grant=f"sha256:{'0' * 64}"), harness.clock.now())
    page = await person.open(f"{ADMIN}/audit?type=TokenRefreshed")
    assert (1, 0) == (len(table(page)), page.source.count("/grants/sha256:")), "the grant is forgotten"


# acting


async def test_revoke_asks_first_and_ends_the_grant(harness: Harness) -> None:
    await harness.connected()
    await harness.events()
    grant = await harness.grant()
    assert grant is not None
    person = await operator_browser(harness)
    await person.open(f"{ADMIN}/grants/{grant.id}")
    page = await person.open(f"{ADMIN}/grants/{grant.id}/revoke")
    assert isinstance(await harness.ask(), Ready), "a question changes nothing"
    assert ALICE in page.text
    page = await submit_form(person, "/revoke")
    assert f"{ADMIN}/grants/{grant.id}?done=revoked" == page.location
    assert "The grant has ended" in (await person.follow()).text
    assert isinstance(await harness.ask(), AuthorizationRequired)
    assert ["auth.revoked"] == [event["type"] for event in await harness.events()]
    (entry,) = [each for each in harness.audit.entries if isinstance(each, PageAction)]
    assert ("mail", "revoke", grant.id) == (entry.app, entry.action, entry.target)
    assert entry.browser.startswith("browser-session-")


async def test_of_two_operators_who_revoke_one_grant_the_second_has_nothing_left_to_do(harness: Harness) -> None:
    await harness.connected()
    grant = await harness.grant()
    assert grant is not None
    first, second = await operator_browser(harness), await operator_browser(harness)
    for person in (first, second):
        await person.open(f"{ADMIN}/grants/{grant.id}/revoke")
    for person, done, said in ((first, "revoked", "The grant has ended."), (second, "nothing", "Nothing was left")):
        page = await submit_form(person, "/revoke")
        assert f"{ADMIN}/grants/{grant.id}?done={done}" == page.location
        assert said in (await person.follow()).text
    assert (
        f"{ADMIN}/grants/{grant.id}?done=nothing" == (await second.open(f"{ADMIN}/grants/{grant.id}/revoke")).location
    )
    assert 1 == sum(isinstance(each, PageAction) for each in harness.audit.entries)


async def test_a_form_of_before_a_second_sign_in_says_that_it_is_out_of_date_and_leads_on(harness: Harness) -> None:
    await harness.ask_link()
    person = await operator_browser(harness)
    page = await person.open(f"{ADMIN}/waiting")
    old = next(each for each in page.document.forms if each.action.endswith("/cancel"))
    await submit_form(person, "/leave")
    _, key = await harness.broker.api_keys.create("ops", {"operator"})
    await try_key(harness, key.reveal(), person)
    await person.follow()
    refused = await person.submit(form=old)
    assert_error_page(refused, Code.OWNER_BINDING_FAILED, "formOutdated")
    assert "link" not in refused.text
    assert 200 == (await person.follow(refused.document.links[0])).status
    assert "planner" in (await person.open(f"{ADMIN}/waiting")).text, "nothing was withdrawn"


async def test_an_unconfigured_apps_grant_is_seen_and_can_be_ended(
    identity_provider: IdentityProvider, test_clock: TestClock
) -> None:
    settings = public(BASE, admin_loopback=True)
    both = [user_app(identity_provider), user_app(identity_provider, "files")]
    async with running(identity_provider, both, clock=test_clock, settings=settings) as first:
        grant = await planted_records.grant(first, "files", ALICE)
        async with running(
            identity_provider, both[:1], clock=test_clock, settings=settings, store=first.store
        ) as harness:
            person = await operator_browser(harness)
            assert "no longer configured" in person.page.text
            for place in ("grants", "audit"):
                page = await person.open(f"{ADMIN}/{place}")
                assert '<option value="files">' in page.source, f"{place}: an operator can choose its grants"
                page = await person.open(f"{ADMIN}/{place}?app=gone")
                assert '<option value="gone" selected>' in page.source, (
                    f"{place}: a page has the name that was asked for"
                )
            await person.open(f"{ADMIN}/grants/{grant.id}/revoke")
            assert 303 == (await submit_form(person, "/revoke")).status
            kept = await harness.grant("files")
            assert kept is not None
            assert kept.revoked


async def test_team_grants_are_there_too(harness: Harness) -> None:
    await planted_records.grant(harness, "team", TEAM, authorized_by=ALICE)
    page = await (await operator_browser(harness)).open(f"{ADMIN}/grants?app=team")
    assert TEAM in page.text
