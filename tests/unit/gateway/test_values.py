"""Values in messages of the gateway."""

from __future__ import annotations

import pytest

from oauthbroker.gateway.values import shown


@pytest.mark.parametrize(
    ("value", "text"), [("x" * 64, "x" * 64), ("x" * 65, "x" * 64 + "…"), (2**192 - 1, str(2**192 - 1)), (2**192, "a number of 193 bits")]
)  # fmt: skip
def test_a_value_is_shown_whole_up_to_its_bound(value: object, text: str) -> None:
    assert text == shown(value)
