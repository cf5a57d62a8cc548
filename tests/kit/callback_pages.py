"""Assert what a browser is shown after a callback."""

from __future__ import annotations

from hashlib import sha256

from oauthbroker.core.errors import Code
from oauthbroker.core.words import SENTENCES
from oauthbroker.testing.browser import Page
from oauthbroker.web.words import ERRORS, PAGES
from tests.kit.running_broker import BASE

CALLBACK = f"{BASE}/oauth/callback/mail"
HOST = "127.0.0.1:8420"
UNKNOWN_STATE = "A" * 65


def assert_error_page(page: Page, code: Code, hint: str = "") -> None:
    """The page of this code and of no other, with nothing of any provider in it. `hint` is the sentence that it has in
    place of the code's own."""
    said = (
        {SENTENCES["en"]["hints"][hint]} if hint else {code.sentence("en"), ERRORS["en"].get(code, code.sentence("en"))}
    )
    assert (code.status, True) == (page.status, any(each in page.text for each in said)), page.text


def arrival_name(path: str) -> str:
    """The name of the cookie for the result at that path."""
    return f"oab_arrival-{sha256(path.encode()).hexdigest()[:32]}"


def assert_already_connected(page: Page) -> None:
    """The page of a used link whose app is connected: it offers no other link."""
    text = page.text
    assert (409, True) == (page.status, PAGES["en"].connected_lead in text), text
    assert [] == [words for words in ("new one", "new link", "새 링크") if words in text]


def without_request_id(page: Page) -> tuple[int, list[tuple[str, str]], bytes]:
    """All of an answer but the request id."""
    return page.status, [pair for pair in page.headers if pair[0].lower() != "x-request-id"], page.body


def assert_leads_to_connected(page: Page) -> None:
    assert (303, f"{BASE}/connected/mail") == (page.status, page.location)
