"""Regular expressions of operators: one that cannot be compiled is none, for each reason of the compiler."""

from __future__ import annotations

import pytest

from oauthbroker.core.patterns import is_pattern


@pytest.mark.parametrize("text", ["", "[0-9a-f]{32}", "(?:a|b)+", "ü+"])
def test_what_compiles_is_one(text: str):
    assert is_pattern(text)


@pytest.mark.parametrize("text", ["(", "[", "*", "(?P<x", "\\", "a{2,1}", "a{99999999999999}", "(" * 5000 + ")" * 5000])
def test_what_does_not_is_none(text: str):
    assert not is_pattern(text)
