"""The Bearer challenge of a WWW-Authenticate header."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.core.bearer_challenge import LONGEST, bearer_challenge, demanded_scopes

CHALLENGES = {
    "Bearer": {},
    "bearer realm=x": {"realm": "x"},
    'Bearer error="insufficient_scope", scope="a b"': {"error": "insufficient_scope", "scope": "a b"},
    'Bearer Error = "x" ,SCOPE="y"': {"error": "x", "scope": "y"},
    'Basic realm="a, Bearer scope=b", Bearer scope="c"': {"scope": "c"},
    'Negotiate abc==, Bearer resource_metadata="https://mcp.example/.well-known/x"': {
        "resource_metadata": "https://mcp.example/.well-known/x"
    },
    r'Bearer realm="a \"b\" \\"': {"realm": r'a "b" \\'[:-1]},
    ', Bearer scope="a",, realm="b",': {"scope": "a", "realm": "b"},
    'Bearer scope="a", Bearer scope="b"': {"scope": "a"},
    "": None,
    "Basic realm=x": None,
    'scope="a"': None,
    'Bearer scope="a", scope="b"': None,
    'Bearer scope="a': None,
    'Bearer scope="a" realm="b"': None,
    "Bearer scope=a b": None,
    "Bearer scope=ü": None,
    f'Bearer scope="{"a" * LONGEST}"': None,
}  # fmt: skip


@pytest.mark.parametrize(("header", "found"), CHALLENGES.items())
def test_a_challenge_is_read_as_the_rfc_writes_it(header: str, found: dict[str, str] | None) -> None:
    assert found == bearer_challenge(header)


@given(st.dictionaries(st.text(string.ascii_lowercase, min_size=1), st.text(string.printable[:95]), min_size=1))
def test_quoted_text_is_read_back_as_it_was_written(parameters: dict[str, str]) -> None:
    escaped = {name: value.replace("\\", r"\\").replace('"', r"\"") for name, value in parameters.items()}
    header = "Bearer " + ", ".join(f'{name}="{value}"' for name, value in escaped.items())
    assert parameters == bearer_challenge(header)


@given(st.text(max_size=200))
def test_no_header_raises(header: str) -> None:
    bearer_challenge(f"Bearer {header}")


@pytest.mark.parametrize(
    ("status", "headers", "scopes"),
    [
        (401, [(b"WWW-Authenticate", b'Bearer scope="a b"')], {"a", "b"}),
        (403, [(b"www-authenticate", b'Bearer error="insufficient_scope", scope="a"')], {"a"}),
        (403, [(b"www-authenticate", b'Bearer scope="a"')], set()),
        (401, [(b"www-authenticate", b"Basic"), (b"www-authenticate", b"Bearer scope=a")], {"a"}),
        (401, [(b"www-authenticate", b'Bearer scope="\xff\xfe')], set()),
        (401, [], set()),
        (200, [(b"www-authenticate", b"Bearer scope=a")], set()),
    ],
)
def test_the_scopes_that_an_answer_demands(status: int, headers: list[tuple[bytes, bytes]], scopes: set[str]) -> None:
    assert scopes == demanded_scopes(status, headers)
