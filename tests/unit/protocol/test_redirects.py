"""Where an endpoint redirects is said to the operator, without a secret and without a provider's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.protocol.messages import ProviderRequest, ProviderResponse
from oauthbroker.protocol.network.crash_guard import validator
from oauthbroker.protocol.redirects import REDIRECTS, redirect_note

URL = "https://idp.example/oauth/token"
BASIC = "Basic bXktaWQ6bXktJTI1d29yZA=="  # my-id:my-%25word, encoded as RFC 6749 section 2.3.1 says
REQUEST = ProviderRequest(
    "POST", URL, kind="refresh", form={"refresh_token": Secret("spent-word"), "grant_type": "refresh_token"},
    headers={"Authorization": Secret(BASIC), "X-Token": Secret("Bearer other-word")},
)  # fmt: skip
ELSEWHERE = "another address"
PLACES = [
    ("https://login.example/oauth2/v2.0/token", "https://login.example/oauth2/v2.0/token"),
    ("https://login.example:8443/", "https://login.example:8443/"),
    ("http://idp.example/oauth/token", "http://idp.example/oauth/token"),
    ("//login.example/a", "https://login.example/a"),
    ("/login", "https://idp.example/login"),
    ("token/", "https://idp.example/oauth/token/"),
    ("https://user:word@login.example/a", "https://login.example/a"),
    ("https://login.example/a?code=x&session=y#z", "https://login.example/a"),
    ("https://login.example/t/9f8ac3d2e1/token", "https://login.example/t/.../token"),
    ("https://login.example/Sorry%2C%20you%20may%20not", "https://login.example/..."),
    (f"https://login.example/{'a' * 30}", "https://login.example/..."),
    ("https://login.example/spent-word", ELSEWHERE),
    ("https://login.example/a?t=spent%2Dword", ELSEWHERE),
    ("https://spent-word.example/a", ELSEWHERE),
    ("https://login.example/other-word", ELSEWHERE),
    ("https://login.example/my-%25word", ELSEWHERE),
    (f"https://{'a' * 31}.example/", ELSEWHERE),
    ("https://[::1]/a", ELSEWHERE),
    ("https://login.example:x/a", ELSEWHERE),
    ("https://[/a", ELSEWHERE),
    ("file:///etc/passwd", ELSEWHERE),
    ("", ELSEWHERE),
    ("https://login.example/a\n", ELSEWHERE),
    (f"https://login.example/{'a/' * 2000}", ELSEWHERE),
]


@pytest.mark.case("22")
@pytest.mark.parametrize(("location", "place"), PLACES)
def test_a_redirect_is_reported_with_the_words_of_its_address_alone(location: str, place: str) -> None:
    said = f"the token endpoint redirects to {place}, which is not followed"
    assert {said} == {redirect_note(REQUEST, status, location) for status in REDIRECTS}


@pytest.mark.parametrize("status", [200, 204, 300, 304, 400, 404, 500])
def test_another_status_says_no_place(status: int) -> None:
    assert "" == redirect_note(REQUEST, status, "https://login.example/a")


@pytest.mark.parametrize("header", ["Basic no base64", "Basic /w==", "Basic"])
def test_a_header_that_is_no_basic_after_all_is_no_fault(header: str) -> None:
    request = ProviderRequest("GET", URL, kind="keys", headers={"Authorization": Secret(header)})
    assert "to https://idp.example/login," in redirect_note(request, 302, "/login")


@given(secret=some.from_regex(r"[A-Za-z0-9_~.-]{12,64}", fullmatch=True), before=some.text(max_size=20))
def test_no_secret_of_the_request_is_ever_said(secret: str, before: str) -> None:
    request = ProviderRequest("POST", URL, kind="code", form={"code": Secret(secret)})
    for location in (f"https://login.example/{before}{secret}", f"https://{secret}.example/", f"/{secret}/{before}"):
        assert secret not in redirect_note(request, 302, location)


def test_every_validator_of_an_answer_notes_it_once() -> None:
    note = redirect_note(REQUEST, 302, "/login")
    answer = ProviderResponse(status=302, content_type="", retry_after=None, body=b"", redirect=note)

    @validator(Code.TOKEN_RESPONSE_INVALID)
    def inner(answer: ProviderResponse) -> None:
        raise BrokerError(Code.TOKEN_RESPONSE_INVALID, note="neither a token nor an error")

    @validator(Code.TOKEN_RESPONSE_INVALID)
    def outer(*, answer: ProviderResponse) -> None:
        inner(answer)

    with pytest.raises(BrokerError) as caught:
        outer(answer=answer)
    assert f"neither a token nor an error; {note}" == caught.value.note
