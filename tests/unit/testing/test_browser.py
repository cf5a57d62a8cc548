"""A browser without scripts: the headers it sends, the redirects it follows, the cookies it keeps."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from oauthbroker.testing import Browser, Page
from oauthbroker.testing.html import parse

HERE, SIBLING, STRANGER = "https://broker.test", "https://api.broker.test", "https://evil.example"


async def _echo(request: Request) -> Response:
    """Says what arrived."""
    body = (await request.body()).decode()
    return JSONResponse({"method": request.method, "headers": dict(request.headers), "form": parse_qsl(body)})


async def _page(request: Request) -> Response:
    policy = request.query_params.get("policy")
    return HTMLResponse(
        '<title>T</title><p>Hello <b>you</b></p><form method="post" action="echo">'
        '<input type="hidden" name="csrf" value="t0k&amp;en"><input name="who" value="me">'
        '<button name="decision" value="yes">Yes</button><button name="decision" value="no">No</button></form>',
        headers={"referrer-policy": policy} if policy else {},
    )


async def _set(request: Request) -> Response:
    answer = Response()
    answer.headers["set-cookie"] = request.headers["x-set"]
    return answer


async def _go(request: Request) -> Response:
    return RedirectResponse(request.query_params["to"], 303)


APP = Starlette(
    routes=[
        Route("/echo", _echo, methods=["GET", "POST"]),
        Route("/page", _page),
        Route("/set", _set),
        Route("/go", _go),
        Route("/a/b/echo", _echo),
    ]
)


@pytest.fixture
def me() -> Browser:
    return Browser(dict.fromkeys((HERE, SIBLING, STRANGER, "http://broker.test", "http://127.0.0.1"), APP))


def seen(page: Page) -> dict[str, Any]:
    return dict(json.loads(page.body))


async def test_a_typed_address_has_no_initiator(me: Browser):
    headers = seen(await me.open(HERE + "/echo"))["headers"]
    assert ("none", "navigate", "document") == tuple(headers[f"sec-fetch-{part}"] for part in ("site", "mode", "dest"))
    assert "origin" not in headers
    assert "text/html" in headers["accept"]
    assert "en" == headers["accept-language"]


@pytest.mark.parametrize(
    ("target", "site"),
    [(HERE, "same-origin"), (SIBLING, "same-site"), (STRANGER, "cross-site"), ("http://broker.test", "cross-site")],
)
async def test_a_link_says_where_it_comes_from(me: Browser, target: str, site: str):
    await me.open(HERE + "/page")
    assert site == seen(await me.follow(target + "/echo"))["headers"]["sec-fetch-site"]


async def test_a_form_is_sent_with_its_hidden_fields_and_first_button(me: Browser):
    await me.open(HERE + "/page")
    got = seen(await me.submit())
    assert [["csrf", "t0k&en"], ["who", "me"], ["decision", "yes"]] == got["form"]
    assert (HERE, "same-origin") == (got["headers"]["origin"], got["headers"]["sec-fetch-site"])


async def test_a_form_is_filled_by_name_or_sent_exactly_as_given(me: Browser):
    await me.open(HERE + "/page")
    got = seen(await me.submit({"decision": "no", "who": ["a", "b"]}))
    assert [["csrf", "t0k&en"], ["decision", "no"], ["who", "a"], ["who", "b"]] == got["form"]
    await me.open(HERE + "/page")
    assert [["x", "1"], ["x", "2"]] == seen(await me.submit([("x", "1"), ("x", "2")]))["form"]


async def test_no_form_of_that_name_is_told(me: Browser):
    await me.open(HERE + "/page")
    with pytest.raises(LookupError, match="nothing-like-it"):
        await me.submit({"nothing-like-it": "1"})


async def test_an_attackers_page_posts_cross_site_with_origin_null(me: Browser):
    headers = seen(await me.post(HERE + "/echo", [("a", "b")]))["headers"]
    assert ("null", "cross-site") == (headers["origin"], headers["sec-fetch-site"])


async def test_no_referrer_hides_the_origin_of_a_post(me: Browser):
    await me.open(HERE + "/page?policy=no-referrer")
    assert "null" == seen(await me.submit())["headers"]["origin"]
    await me.open(HERE + "/page?policy=same-origin")
    assert HERE == seen(await me.submit())["headers"]["origin"]


async def test_redirects_and_refreshes_wait_to_be_followed(me: Browser):
    page = await me.open(HERE + "/go?to=/echo")
    assert (303, HERE + "/echo") == (page.status, page.location)
    assert "GET" == seen(await me.follow())["method"]
    with pytest.raises(LookupError, match="leads nowhere"):
        await me.follow()
    assert ["/go?to=/echo", "/echo"] == [one.url.removeprefix(HERE) for one in me.history]


def test_no_page_is_open_at_first():
    with pytest.raises(LookupError, match="no page"):
        Browser().page  # noqa: B018


async def test_extra_headers_win(me: Browser):
    headers = seen(await me.open(HERE + "/echo", headers={"Cookie": "forged=1", "X-Forwarded-Host": "evil"}))["headers"]
    assert ("forged=1", "evil") == (headers["cookie"], headers["x-forwarded-host"])


async def cookie_kept(me: Browser, header: str, url: str = HERE + "/set") -> bool:
    await me.open(url, headers={"X-Set": header})
    return bool(len(me.cookies))


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        ("a=1", True),
        ("a=1; Domain=broker.test", True),
        ("a=1; Domain=evil.example", False),
        ("a=1; Domain=test", False),
        ("a=1; Secure", True),
        ("a=1; SameSite=None", False),
        ("a=1; SameSite=None; Secure", True),
        ("__Host-a=1; Secure; Path=/", True),
        ("__Host-a=1; Secure", True),  # the default path of /set is /
        ("__Host-a=1; Path=/", False),
        ("__Host-a=1; Secure; Path=/set", False),
        ("__Host-a=1; Secure; Path=/; Domain=broker.test", False),
        ("__Secure-a=1", False),
        ("__Secure-a=1; Secure", True),
        ("a=1; Max-Age=0", False),
        ("a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", False),
        ("nonsense", False),
    ],
)
async def test_a_cookie_is_kept_by_the_rules(me: Browser, header: str, kept: bool):
    assert kept is await cookie_kept(me, header)


async def test_secure_cookies_need_https_or_loopback(me: Browser):
    assert not await cookie_kept(me, "a=1; Secure", "http://broker.test/set")
    assert await cookie_kept(me, "a=1; Secure", "http://127.0.0.1/set")


async def cookies_at(me: Browser, url: str, **how: Any) -> str:
    return str(seen(await me.open(url, **how))["headers"].get("cookie", ""))


async def test_cookies_go_back_where_they_belong(me: Browser):
    await me.open(HERE + "/set", headers={"X-Set": "here=1"})
    await me.open(HERE + "/set", headers={"X-Set": "family=2; Domain=broker.test"})
    await me.open(HERE + "/set", headers={"X-Set": "deep=3; Path=/a/b"})
    assert "here=1; family=2" == await cookies_at(me, HERE + "/echo")
    assert "deep=3; here=1; family=2" == await cookies_at(me, HERE + "/a/b/echo")
    assert "family=2" == await cookies_at(me, SIBLING + "/echo")
    assert "" == await cookies_at(me, STRANGER + "/echo")


async def test_a_newer_cookie_replaces_and_max_age_zero_deletes(me: Browser):
    await me.open(HERE + "/set", headers={"X-Set": "a=1"})
    await me.open(HERE + "/set", headers={"X-Set": "a=2"})
    assert "a=2" == await cookies_at(me, HERE + "/echo")
    await me.open(HERE + "/set", headers={"X-Set": "a=; Max-Age=0"})
    assert 0 == len(me.cookies)


@pytest.mark.parametrize(
    ("same_site", "link", "form"), [("Lax", True, False), ("Strict", False, False), ("None; Secure", True, True)]
)
async def test_same_site_decides_what_travels_from_elsewhere(me: Browser, same_site: str, link: bool, form: bool):
    await me.open(HERE + "/set", headers={"X-Set": f"a=1; SameSite={same_site}"})
    elsewhere = await me.open(STRANGER + "/page")
    assert link is ("cookie" in seen(await me.follow(HERE + "/echo"))["headers"])
    got = seen(await me.post(HERE + "/echo", [("x", "y")], initiator=elsewhere))
    assert form is ("cookie" in got["headers"])


async def test_cookies_can_be_planted_altered_and_dropped(me: Browser):
    me.cookies.set("__Host-oab-1", "tossed", "broker.test")
    assert "__Host-oab-1=tossed" == await cookies_at(me, HERE + "/echo")
    me.cookies["__Host-oab-1"].value = "changed"
    assert "__Host-oab-1=changed" == await cookies_at(me, HERE + "/echo")
    assert ["__Host-oab-1"] == list(me.cookies)
    me.cookies.drop("__Host-oab-1")
    assert "__Host-oab-1" not in me.cookies
    assert "changed" not in repr(me.cookies.all)


@pytest.mark.parametrize(
    ("content", "url"),
    [
        ("0; url=https://idp.example/a?b=c&amp;d=e", "https://idp.example/a?b=c&d=e"),
        ("0;URL='https://idp.example/'", "https://idp.example/"),
        ("3, url=/next", "/next"),
        ("0;/next", "/next"),
    ],
)
def test_a_meta_refresh_is_read_in_its_spellings(content: str, url: str):
    assert url == parse(f'<meta http-equiv="Refresh" content="{content}">').refresh


def test_only_what_a_form_would_send_is_read():
    page = parse(
        '<form method=POST action="/x"><input type=checkbox name=a value=1 checked><input type=checkbox name=b>'
        "<input type=radio name=r value=1><input type=radio name=r value=2 checked><input name=off disabled>"
        "<select name=s><option value=1><option value=2 selected></select><textarea name=t></textarea>"
        "<input type=submit name=go value=1><button type=button name=no></button><input></form><input name=outside>"
    )
    (form,) = page.forms
    assert [("a", "1"), ("r", "2"), ("s", "2"), ("t", "")] == form.fields
    assert [("go", "1")] == form.buttons


def test_text_is_what_a_person_reads():
    page = parse("<title>Top</title><style>p{}</style><p>One&nbsp;&amp; <b>two</b></p><script>no()</script><p>three")
    assert ("Top", "One & two three") == (page.title, page.text)
