"""A base path with facts keeps each request below one place of the API, such as the user's site."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.injection.targets import target_of
from oauthbroker.model.provider_api import ApiAccess, ApiHost
from tests.kit.forms import examples
from tests.kit.samples import app_with

APP = app_with(api=ApiAccess((ApiHost("api.example.com"),), base_path="/ex/jira/{cloudid}/"))
MINE: dict[str, Any] = {"cloudid": "11111111-aaaa"}
BASE = "/ex/jira/11111111-aaaa/"


def sent(path: str, data: dict[str, Any] | None = None) -> str | Code:
    """Return the path that the provider gets, or the code of the refusal."""
    try:
        return target_of(APP, "GET", f"https://api.example.com{path}").path_for(MINE if data is None else data)
    except BrokerError as error:
        return error.code


@pytest.mark.parametrize(
    "path, expected",
    [
        ("", BASE),
        ("/", BASE),
        ("?a=b", f"{BASE}?a=b"),
        ("/rest/api/3/myself", f"{BASE}rest/api/3/myself"),
        ("/rest?q=../x&r=%2e%2e", f"{BASE}rest?q=../x&r=%2e%2e"),
        (f"{BASE}rest", f"{BASE}rest"),
        ("/ex/jira/22222222-bbbb/rest", f"{BASE}ex/jira/22222222-bbbb/rest"),
        ("/ex/jira/11111111-aaaab/rest", f"{BASE}ex/jira/11111111-aaaab/rest"),
        ("//evil.example/x", f"{BASE}/evil.example/x"),
        ("/projects/a%2Fb", f"{BASE}projects/a%2Fb"),
        ("/...", f"{BASE}..."),
    ],
)
def test_a_path_goes_below_the_base_path_once(path: str, expected: str) -> None:
    assert expected == sent(path)


@pytest.mark.parametrize(
    "path",
    [
        "/..",
        "/../22222222-bbbb/rest",
        f"{BASE}../22222222-bbbb/rest",
        "/a/../../b",
        "/./a",
        "/%2e%2e/a",
        "/%2E%2e/a",
        "/.%2e/a",
        "/%252e%252e/a",
        "/%25252e./a",
        "/..%2fa",
        "/..%5ca",
        "/a%2f..%2fb",
        "/..;x=1/a",
        "/%2e%2e;/a",
        "/..?a=b",
    ],
)
def test_a_path_that_could_leave_it_is_refused_in_any_encoding(path: str) -> None:
    assert Code.REQUEST_INVALID is sent(path)


@pytest.mark.parametrize("value", ["", ".", "..", "..;a", ".. ", "\uff0e\uff0e", "a/../b", None])
def test_without_a_usable_fact_no_request_is_sent(value: Any) -> None:
    assert Code.FACT_MISSING is sent("/a", {"cloudid": value} if value is not None else {})


@given(st.text(min_size=1, max_size=60).filter(lambda text: text not in {".", ".."}))
@settings(max_examples=examples(300))
def test_a_fact_of_any_characters_is_one_segment(text: str) -> None:
    found = sent("/a", {"cloudid": text.encode("utf-8", "replace").decode()})
    assert isinstance(found, str)
    segments = found.split("/")
    assert ["", "ex", "jira"] == segments[:3]
    assert "a" == segments[4]
    assert len(segments) == 5
    assert quote(unquote(segments[3]), safe="") == segments[3]


def test_an_app_without_a_base_path_leaves_paths_as_they_came() -> None:
    app = app_with(api=ApiAccess((ApiHost("api.example.com"),)))
    assert "/a//%2Fb" == target_of(app, "GET", "https://api.example.com/a//%2Fb").path_for({})
