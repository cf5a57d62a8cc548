"""Names of tools: `{resource}__{export}` (specification 002, section 5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oauthbroker.tools.types.names import ToolName, is_export_name, is_resource_name, parse_tool_name

_TEXTS = st.text(alphabet="ab0_-", max_size=12)


@pytest.mark.rule("002-5.3-1", "002-2.2-2", "002-5.2-1", "002-5.2-2")
@given(resource=_TEXTS.filter(is_resource_name), export=_TEXTS.filter(is_export_name))
def test_a_full_name_parsed_at_its_first_separator_comes_back_as_it_was(resource, export):
    assert parse_tool_name(str(ToolName(resource, export))) == (resource, export)


@pytest.mark.rule("002-6.2-1", "002-2.2-3", "002-5.2-3")
@pytest.mark.parametrize(
    ("name", "resource", "export"),
    [
        ("bash", True, True),
        ("file-system", True, True),
        ("post_message", True, True),
        ("a__b", False, False),
        ("ends_", False, True),
        ("_begins", True, False),
        ("swarmBundle", True, False),
        ("openChangeset", False, True),
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


@pytest.mark.parametrize("name", ["bash", "", "a_b"])
def test_a_name_without_a_separator_is_no_tool_name(name):
    assert parse_tool_name(name) is None
