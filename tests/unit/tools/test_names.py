"""Names of tools: `{resource}__{export}` (specification 002, section 5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.tools.types.catalog import ToolName, is_export_name, is_resource_name, parse_tool_name

_TEXTS = st.text(alphabet="ab0_-", max_size=12)


@pytest.mark.rule("002-5.3-1", "002-2.2-2", "002-5.2-1", "002-5.2-2", "002-1.1-2")
@given(resource=_TEXTS.filter(is_resource_name), export=_TEXTS.filter(is_export_name))
def test_a_full_name_parsed_at_its_first_separator_comes_back_as_it_was(resource, export):
    assert parse_tool_name(str(ToolName(resource, export))) == (resource, export)


@pytest.mark.rule("002-6.2-1", "002-2.2-3", "002-5.2-3")
@pytest.mark.parametrize(
    ("name", "resource", "export"),
    [
        ("bash", True, True),
        ("file-system", True, True),
        ("exec", True, True),
        ("script", True, True),
        ("read", True, True),
        ("write", True, True),
        ("list-channels", True, True),
        ("post_message", True, True),
        ("0", True, True),
        ("a.b", False, False),
        ("a/b", False, False),
        ("a b", False, False),
        ("셸", False, False),
        ("a\uff3f\uff3fb", False, False),
        ("a___b", False, False),
        ("a__b", False, False),
        ("ends_", False, True),
        ("_begins", True, False),
        ("swarmBundle", True, False),
        ("openChangeset", False, True),
        ("discardChangeset", False, True),
        ("commitChangeset", False, True),
        ("Bash", False, False),
        ("é", False, False),
        ("٣", False, False),
        ("", False, False),
        ("a\n", False, False),
        ("a" * 64, True, True),
        ("a" * 65, False, False),
    ],
)
def test_names_are_lower_case_letters_digits_hyphens_and_single_underscores(name, resource, export):
    assert (is_resource_name(name), is_export_name(name)) == (resource, export)


PARSED = {  # what the printed function returns
    "bash__exec": ("bash", "exec"),
    "file-system__read": ("file-system", "read"),
    "http-fetch__post": ("http-fetch", "post"),
    "a__b__c": ("a", "b__c"),
    "a___b": ("a", "_b"),
    "__b": ("", "b"),
    "a__": ("a", ""),
    "__": ("", ""),
    "\U0001f600__\ud55c": ("\U0001f600", "\ud55c"),
}


@pytest.mark.rule("002-5.3-1", "002-2.2-2", "002-5.1-1")
@pytest.mark.parametrize(("name", "parts"), PARSED.items(), ids=ascii)
def test_a_name_is_split_at_its_first_separator_and_built_as_the_document_prints(name, parts):
    parsed = parse_tool_name(name)
    assert (parts, name) == (parsed, str(parsed))


@pytest.mark.rule("002-5.3-1")
@pytest.mark.parametrize("name", ["bash", "", "a_b", "a_-_b", "\uff3f\uff3f"])
def test_a_name_without_a_separator_is_no_tool_name(name):
    assert parse_tool_name(name) is None
