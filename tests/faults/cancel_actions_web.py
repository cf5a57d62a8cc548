"""What people do with browsers, and what runtimes, tools and operators ask over HTTP."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any
from urllib.parse import quote

from oauthbroker.model.connect_links import notice_link
from oauthbroker.records.refresh_end import RefreshEnd
from oauthbroker.testing import Browser
from oauthbroker.testing.browser import Page
from tests.faults.cancel_actions import ASKABLE, pair_of
from tests.faults.cancel_table import action
from tests.faults.cancel_world import AGENTS, ERASED, Side, World, drawn, login_of, person, turn_of
from tests.kit.running_broker import BASE
from tests.story.api.kit import Caller, Exchange
from tests.story.binding_kit import CODE, RUNTIME

ONCE = ("GET /connected/{app}", "GET /declined/{app}", "GET /next/{session}", "GET /connect")


def checked(w: World, page: Page) -> Page:
    if page.status >= 500:
        w.model.problems.append(f"{page.status} for {page.method} {page.url.partition('?')[0][-60:]}: {page.text[:80]}")
    return page


async def sent_off(w: World, browser: Browser, link: str) -> str | None:
    """Where the button of a link's page leads; None for a link that has none (any more)."""
    page = checked(w, await browser.open(link))
    if page.status >= 400 or not page.document.forms:
        return None
    return checked(w, await browser.submit()).next_url


async def followed(w: World, browser: Browser, url: str) -> Page:
    page = checked(w, await browser.follow(url))
    while page.location is not None and page.location.startswith(BASE):
        page = checked(w, await browser.follow())
    return page


@action("page GET /connect/{ticket}", "page HEAD /connect/{ticket}", "page HEAD /connect", "page POST /connect/{ticket}", "page GET /oauth/callback/mail", "page POST /connected/{app}",
    "connections.enter_once", *(
    f"page {each}" for each in ONCE
), weight=14)  # fmt: skip
async def person_connects(w: World, s: Side, d: Random) -> None:
    """From the link to the last page; some say no, here or at the provider."""
    if (found := drawn(d, w.links)) is None:
        return
    subject, asked = found
    browser = w.browser(d)
    if asked.device_code is not None:
        await typed_code(w, d, browser, subject, asked)
        return
    checked(w, await browser.open(asked.authorization_url, method="HEAD"))  # a chat looks first
    if (url := await sent_off(w, browser, asked.authorization_url)) is None:
        return
    callback = await w.idp.agree(url, login_of(subject), browser=browser, deny=d.random() < 0.15)
    await asyncio.sleep(0)
    page = await followed(w, browser, callback)
    if (url := page.next_url or "").startswith(RUNTIME):
        w.proofs.append((url.partition("handle=")[2], subject, None))
    if "/connected/" in page.url and page.document.forms and d.random() < 0.3:
        checked(w, await browser.submit())
    if code := CODE.search(page.text):
        for turn in (turn_of(d, int(subject[-1])) for _ in range(4)):
            w.proofs.append((code[1], subject, turn))


async def typed_code(w: World, d: Random, browser: Browser, subject: str, asked: Any) -> None:
    """The page behind the link, and the person at the provider's."""
    checked(w, await browser.open(asked.authorization_url))
    story = w.idp.device(asked.device_code.user_code)
    if story.status == "pending":
        decide = w.idp.device_approve if d.random() < 0.8 else w.idp.device_deny
        decide(asked.device_code.user_code, login_of(subject))


@action("page POST /next/{session}/again")
async def person_tries_again(w: World, s: Side, d: Random) -> None:
    """Agrees with the account of another person, and presses the button of the page that refuses it."""
    if (found := drawn(d, w.links)) is None or found[1].device_code is not None:
        return
    browser = w.browser(d)
    if (url := await sent_off(w, browser, found[1].authorization_url)) is None:
        return
    page = await followed(w, browser, await w.idp.agree(url, "mallory", browser=browser))
    if any(form.action.endswith("/again") for form in page.document.forms):
        checked(w, await browser.submit())


@action("page POST /next/{session}/choice")
async def person_chooses_where_nothing_is_to_be_chosen(w: World, s: Side, d: Random) -> None:
    """Sends the form of a choice for a connection that has none, as after the back button."""
    if found := drawn(d, w.links):
        checked(w, await w.browser(d).post(f"{BASE}/next/{found[1].auth_session_id}/choice", [("choice", "0")]))


@action("page GET /connections", "page POST /connections/{grant}/disconnect", "page GET /connections/{grant}/disconnect",
    "page POST /connections/{grant}/switch", "page POST /connections/{grant}/again", "page POST /connections/leave",
    "page GET /connections/left", "page GET /connections/open/{ticket}", "page POST /connections/open/{ticket}",
    weight=3)  # fmt: skip
async def person_looks(w: World, s: Side, d: Random) -> None:
    browser = w.browser(d)
    url, _ = await s.broker.connections.link({"user": person(d.randrange(4))})
    checked(w, await browser.open(url))
    checked(w, await browser.submit())
    await wandered(w, d, browser, f"{BASE}/connections", ("disconnect", "switch", "again", "leave"))


@action("page GET /admin", "page GET /admin/login", "page POST /admin/login", "page POST /admin/enter",
    "page GET /admin/grants", "page GET /admin/grants/{grant}", "page GET /admin/grants/{grant}/revoke",
    "page POST /admin/grants/{grant}/revoke", "page GET /admin/waiting", "page POST /admin/waiting/{session}/cancel",
    "page GET /admin/queues", "page POST /admin/queues/retry", "page GET /admin/queues/drop",
    "page POST /admin/queues/drop", "page GET /admin/circuits", "page GET /admin/audit", "page GET /admin/audit.csv",
    "page POST /admin/leave", "page GET /admin/left", weight=3)  # fmt: skip
async def operator_looks(w: World, s: Side, d: Random) -> None:
    browser = w.browser(d)
    page = checked(w, await browser.open(f"{BASE}/admin/login"))
    if any("key" in form.names for form in page.document.forms):
        checked(w, await browser.submit({"key": s.api.operator.bearer or ""}))
    for place in d.sample(("", "/grants", "/waiting", "/queues", "/circuits", "/audit", "/audit.csv"), 2):
        await wandered(w, d, browser, f"{BASE}/admin{place}", ("revoke", "cancel", "retry", "drop", "leave"))


async def wandered(w: World, d: Random, browser: Browser, url: str, buttons: tuple[str, ...]) -> None:
    """Opens a page, then presses one of its buttons or follows one of its links, twice."""
    page = checked(w, await browser.open(url))
    for _ in range(2):
        forms = [form for form in page.document.forms if form.action.rpartition("/")[2].partition("?")[0] in buttons]
        links = [link for link in page.document.links if "/grants/" in link or "/disconnect" in link or "/drop" in link]
        if forms and d.random() < 0.6:
            form = d.choice(forms)
            if "/queues/drop" in form.action:
                w.model.dropped |= {value for name, value in form.fields if value.startswith("evt-")}
            page = checked(w, await browser.submit(form=form))
        elif links:
            page = checked(w, await browser.follow(d.choice(links)))
        if page.location is not None and page.location.startswith(BASE):
            page = checked(w, await browser.follow())


# over HTTP


class Telling(asyncio.Queue[bytes]):
    """The connection to a consumer: the model hears of an event as soon as it is written."""

    def __init__(self, w: World) -> None:
        super().__init__()
        self._w = w
        self.leased: list[dict[str, Any]] = []

    def put_nowait(self, item: bytes) -> None:
        for line in item.decode().splitlines():
            if line.removeprefix("data: ").startswith('{"event":'):
                said = json.loads(line.removeprefix("data: "))
                self.leased.append(said)
                self._w.model.handed_event(said["event"]["eventId"], said["attempt"], said["event"])
        super().put_nowait(item)


async def call(w: World, caller: Caller, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
    exchange = Exchange(parts=more.pop("parts", None) or asyncio.Queue())
    sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    await caller._run(exchange, method, path, body=sent, **more)
    parts = b"".join(exchange.parts.get_nowait() for _ in range(exchange.parts.qsize()))
    alone = path == "/v1/grants" and b'"storeLocked"' in parts  # one import at a time
    if exchange.status >= 500 and path != "/readyz" and not alone:  # which says so of a machine that is busy for 2 s
        w.model.problems.append(f"{exchange.status} for {method} {path.partition('?')[0]}: {parts[:200]!r}")
    kind = exchange.headers.get("content-type", "")
    return exchange.status, json.loads(parts) if parts and "json" in kind else None


@action("http beginTurn", "http endTurn", "http narrowTurn", "http getPending", "http getLinks", "http getAccessToken",
    "http reportRejected", "http listApps", weight=4)  # fmt: skip
async def turn_over_http(w: World, s: Side, d: Random) -> None:
    turn = turn_of(d)
    status, begun = await call(w, s.api.runtime, "POST", "/v1/turns", {"turn": turn.resume_target.to_json()})
    if status != 201:
        return
    tool = s.api.holding(begun["turnToken"])
    for _ in range(3):
        app, ref = (name := d.choice(ASKABLE)), {"kind": "OAuthApp", "name": name}
        match d.randrange(6):
            case 0:
                await call(w, tool, "POST", "/v1/turn/narrow", {"ttlSeconds": 60})
            case 1:
                await call(w, tool, "GET", "/v1/turn/pending")
                await call(w, tool, "GET", "/v1/turn/links")
            case 2:
                await call(w, tool, "GET", "/v1/apps")
            case 3 if token := w.tokens.get(pair_of(app, turn)):
                said = {"oauthAppRef": ref, "accessToken": token.reveal()}
                await call(w, tool, "POST", "/v1/tokens/rejected", said)
            case _:
                await token_over_http(w, tool, begun["turnId"], app, pair_of(app, turn))
    await call(w, s.api.runtime, "DELETE", f"/v1/turns/{begun['turnId']}")
    w.model.ended_turns.add(begun["turnId"])
    await token_over_http(w, tool, begun["turnId"], "mail", pair_of("mail", turn))


async def token_over_http(w: World, tool: Caller, turn_id: str, app: str, pair: tuple[str, str]) -> None:
    dead = w.model.dead_of(pair)
    _, said = await call(w, tool, "POST", "/v1/tokens", {"oauthAppRef": {"kind": "OAuthApp", "name": app}})
    if said and said.get("status") == "ready":
        if turn_id in w.model.ended_turns:
            w.model.problems.append(f"a token left over HTTP after the end of {turn_id} was acknowledged")
        w.model.handed_out(pair, id(w.idp._state.token_table.tokens[said["accessToken"]].agreement), dead)


@action("http nextEvent", "http ackEvent", "http nackEvent", weight=7)
async def consumed_over_http(w: World, s: Side, d: Random) -> None:
    agent, parts = d.choice(AGENTS), Telling(w)
    path = f"/v1/agents/{agent}/events"
    await call(w, s.api.runtime, "GET", f"{path}?wait={d.choice((0, 0, 1))}", parts=parts)
    for said in parts.leased:
        event, done = said["event"]["eventId"], d.random() < 0.7
        word = "ack" if done else "nack"
        status, _ = await call(w, s.api.runtime, "POST", f"{path}/{event}/{word}", {"lease": said["lease"]})
        if status == 204:
            w.model.settled(event, done=done)


@action("http nextEvent stream", weight=2)
async def streamed(w: World, s: Side, d: Random) -> None:
    """The caller leaves, or is cancelled, in the middle of it."""
    exchange = Exchange(parts=Telling(w))
    asyncio.get_running_loop().call_later(d.uniform(0.001, 0.03), exchange.left.set)
    headers = {"accept": "text/event-stream"}
    await s.api.runtime._run(exchange, "GET", f"/v1/agents/{d.choice(AGENTS)}/events", headers=headers)


@action("http listQueues", "http listDeadLetters", "http retryDeadLetter", "http dropDeadLetter")
async def queues_over_http(w: World, s: Side, d: Random) -> None:
    agent = d.choice(AGENTS)
    path = f"/v1/agents/{agent}/dead-letters"
    await call(w, s.api.operator, "GET", "/v1/queues")
    _, said = await call(w, s.api.operator, "GET", path)
    if letter := drawn(d, said["deadLetters"]):
        if d.random() < 0.5:
            await call(w, s.api.operator, "POST", f"{path}/{letter['eventId']}/retry")
        else:
            w.model.dropped.add(letter["eventId"])
            await call(w, s.api.operator, "DELETE", f"{path}/{letter['eventId']}")


@action("http listAuthSessions", "http getAuthSessionRecord", "http getAuthSession", "http cancelAuthSession")
async def sessions_over_http(w: World, s: Side, d: Random) -> None:
    await call(w, s.api.operator, "GET", "/v1/auth-sessions?limit=3")
    if session := drawn(d, w.sessions):
        await call(w, s.api.operator, "GET", f"/v1/auth-sessions/{session}/record")
        await call(w, s.api.runtime, "GET", f"/v1/auth-sessions/{session}")
        if d.random() < 0.3:
            await call(w, s.api.runtime, "DELETE", f"/v1/auth-sessions/{session}")


@action("http confirmAuthSession", "http linkConnections")
async def confirmed_over_http(w: World, s: Side, d: Random) -> None:
    await call(w, s.api.runtime, "POST", "/v1/connections", {"subjects": {"user": person(d.randrange(4))}})
    if (proof := drawn(d, w.proofs)) is None:
        return
    text, subject, turn = proof
    if turn is None:
        await call(w, s.api.runtime, "POST", "/v1/auth-sessions/confirm", {"handle": text, "subject": subject})


@action("http listGrants", "http getGrantRecord", "http endGrant", weight=3)
async def grants_over_http(w: World, s: Side, d: Random) -> None:
    _, said = await call(w, s.api.operator, "GET", "/v1/grants?state=live&limit=10")
    if grant := drawn(d, (said or {}).get("grants", ())):
        pair = (grant["app"], grant["subject"])
        known, path = w.model.known(pair), f"/v1/grants/{quote(grant['grantId'], safe='')}"
        await call(w, s.api.operator, "GET", f"{path}/record")
        if d.random() < 0.4:
            status, _ = await call(w, s.api.operator, "DELETE", path)
            if status == 200:
                w.model.revoked(pair, known)


@action("http importGrants")
async def imported_over_http(w: World, s: Side, d: Random) -> None:
    line = {"app": "old", "subject": person(d.randrange(3)), "refreshToken": f"refresh-{d.randrange(50)}"}
    body, headers = json.dumps(line).encode() + b"\n{", {"Idempotency-Key": f"key-{d.randrange(8)}"}
    await call(w, s.api.operator, "POST", "/v1/grants", body, headers=headers, kind="application/x-ndjson")


@action("http eraseSubject", weight=1)
async def erased_over_http(w: World, s: Side, d: Random) -> None:
    await call(w, s.api.operator, "POST", "/v1/subjects/erase", {"subject": ERASED, "dryRun": d.random() < 0.5})


@action("page GET /healthz", "page GET /readyz", "page GET /metrics", "page GET /clients/{app}.json", "page GET /",
    "page GET /docs", "page HEAD /healthz", "page HEAD /readyz", weight=1)  # fmt: skip
async def probed(w: World, s: Side, d: Random) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/clients/mail.json", "/", "/docs"):
        await call(w, s.api.operator, "GET", path)
    for path in ("/healthz", "/readyz"):
        await call(w, s.api.operator, "HEAD", path)


@action("serves_at", weight=1)
async def asked_who_listens(w: World, s: Side, d: Random) -> None:
    assert not await s.broker.serves_at("127.0.0.1", 1)


@action("page GET /connect/again/{notice}", weight=1)
async def person_is_told_in_time(w: World, s: Side, d: Random) -> None:
    """A grant turns out to end soon, its user is told, and follows the link of the notice."""
    repository, now = s.parts.repository, w.clock.now()
    alive = [it.record async for it in repository.grants() if not it.record.revoked]
    if not alive:
        return
    key = d.choice(alive).key
    async with repository.pair(key):
        versioned = await repository.grant(key)
        if versioned is None or versioned.record.revoked or versioned.record.ends is not None:
            return
        ends = RefreshEnd(since=now - timedelta(days=30), token_at=now + timedelta(days=1))
        await repository.save_grant(replace(versioned.record, ends=ends), expect=versioned.generation)
    await s.parts.expiring.run_pass()
    versioned = await repository.grant(key)
    if versioned is not None and versioned.record.ends is not None:
        checked(w, await w.browser(d).open(notice_link(BASE, versioned.record.ends.notice)))
