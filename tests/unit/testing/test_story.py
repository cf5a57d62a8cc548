"""connect_through drives a broker it knows nothing of: here a small one, written for this test."""

from __future__ import annotations

import secrets
from html import escape
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from oauthbroker.testing import Browser, CanarySweep, Client, IdentityProvider, connect_through, leave
from oauthbroker.testing.provider.token_table import s256

BROKER = "https://broker.test"
TICKET = "ticket-" + "t" * 30


class SmallBroker:
    """One session: a connect page with a hidden field, an interstitial, a callback bound to a cookie."""

    def __init__(self, idp: IdentityProvider, *, by_link: bool = False) -> None:
        self.idp, self.by_link = idp, by_link
        self.cookie, self.state = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.came_back: dict[str, str] = {}
        self.leak = ""
        idp.register(Client("small", redirect_uris=(BROKER + "/callback",)))
        self.app = Starlette(
            routes=[
                Route("/connect/{ticket}", self.connect, methods=["GET", "POST"]),
                Route("/callback", self.callback),
                Route("/done", self.done),
            ]
        )

    @property
    def provider_url(self) -> str:
        fields = {
            "response_type": "code",
            "client_id": "small",
            "redirect_uri": BROKER + "/callback",
            "scope": "chat:write",
            "state": self.state,
            "code_challenge": s256("v" * 43),
            "code_challenge_method": "S256",
        }
        return self.idp.url("/authorize") + "?" + urlencode(fields)

    async def connect(self, request: Request) -> Response:
        if request.path_params["ticket"] != TICKET:
            return HTMLResponse("<p>unknown link</p>", 404)
        if request.method == "GET":
            return HTMLResponse(
                '<form method="post"><input type="hidden" name="odd-name" value="x"><button>Go</button></form>'
            )
        assert b"odd-name=x" == await request.body()
        target = escape(self.provider_url)
        page = (
            f'<a href="{target}">on</a>' if self.by_link else f'<meta http-equiv="refresh" content="0; url={target}">'
        )
        answer = HTMLResponse(page)
        answer.set_cookie("__Host-small", self.cookie, secure=True, httponly=True, samesite="lax")
        return answer

    async def callback(self, request: Request) -> Response:
        self.came_back = dict(request.query_params)
        if request.cookies.get("__Host-small") != self.cookie:
            return HTMLResponse("<p>another browser</p>", 403)
        return RedirectResponse("/done", 303)

    async def done(self, request: Request) -> Response:
        return HTMLResponse(f"<p>done</p>{self.leak}")


@pytest.fixture
def small(idp: IdentityProvider) -> SmallBroker:
    return SmallBroker(idp)


@pytest.mark.parametrize("by_link", [False, True])
async def test_the_whole_story_ends_on_the_last_page(idp: IdentityProvider, by_link: bool):
    small = SmallBroker(idp, by_link=by_link)
    browser = Browser({BROKER: small.app})
    page = await connect_through(browser, idp, f"{BROKER}/connect/{TICKET}", "bob")
    assert (200, "done", BROKER + "/done") == (page.status, page.text, page.url)
    assert {"code", "state", "iss"} == set(small.came_back)
    assert small.state == small.came_back["state"]


async def test_a_person_can_deny(idp: IdentityProvider, small: SmallBroker):
    await connect_through(Browser({BROKER: small.app}), idp, f"{BROKER}/connect/{TICKET}", deny=True)
    assert "access_denied" == small.came_back["error"]


async def test_a_refused_link_ends_the_story_early(idp: IdentityProvider, small: SmallBroker):
    page = await connect_through(Browser({BROKER: small.app}), idp, f"{BROKER}/connect/wrong")
    assert (404, 0) == (page.status, idp.count("authorize"))


async def test_a_direct_link_goes_straight_to_the_provider(idp: IdentityProvider, small: SmallBroker):
    page = await connect_through(Browser({BROKER: small.app}), idp, small.provider_url)
    assert (403, "another browser") == (page.status, page.text)


async def test_two_browsers_can_share_one_story(idp: IdentityProvider, small: SmallBroker):
    """The attacker opens the connect page, the victim agrees at the provider: the callback lacks the cookie."""
    attacker, victim = Browser({BROKER: small.app}), Browser({BROKER: small.app})
    page = await leave(attacker, f"{BROKER}/connect/{TICKET}")
    assert page.next_url is not None
    callback = await idp.agree(page.next_url, "bob", browser=victim)
    assert {} == small.came_back
    assert 403 == (await victim.open(callback)).status


@pytest.mark.parametrize("leak", ["", "state", "cookie", "ticket"])
async def test_the_story_passes_the_sweep_unless_the_last_page_tells_a_secret(leak: str):
    with CanarySweep() as sweep:
        async with IdentityProvider() as idp:
            small = SmallBroker(idp)
            small.leak = {"state": small.state, "cookie": small.cookie, "ticket": TICKET, "": ""}[leak]
            await connect_through(Browser({BROKER: small.app}), idp, f"{BROKER}/connect/{TICKET}")
    assert ({leak} if leak else set()) == {find.kind for find in sweep.finds()}


async def test_a_second_story_in_the_same_browser_may_show_its_own_way():
    with CanarySweep() as sweep:
        async with IdentityProvider() as idp:
            small = SmallBroker(idp)
            browser = Browser({BROKER: small.app})
            for account in ("alice", "bob"):
                assert 200 == (await connect_through(browser, idp, f"{BROKER}/connect/{TICKET}", account)).status
    assert [] == sweep.finds()


async def test_a_callback_page_that_repeats_its_query_is_found():
    async def talkative(request: Request) -> Response:
        return HTMLResponse(f"your code was {request.query_params['code']}, your state {request.query_params['state']}")

    with CanarySweep() as sweep:
        async with IdentityProvider() as idp:
            callback = await idp.agree(SmallBroker(idp).provider_url)
        await Browser({BROKER: Starlette(routes=[Route("/callback", talkative)])}).open(callback)
    assert {"authorization code", "state"} == {find.kind for find in sweep.finds()}
