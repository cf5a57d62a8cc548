"""The frozen words of turn tokens: the same file is read by the TypeScript client's tests."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.core.errors import BrokerError
from oauthbroker.core.secret import Secret
from tests.vectors.make_turn_tokens import document, narrowed

FILE = Path(__file__).parents[2] / "vectors" / "turn-token-v1.json"
VECTORS: dict[str, Any] = json.loads(FILE.read_text("utf-8"))


@pytest.mark.parametrize("vector", VECTORS["narrowed"], ids=lambda vector: vector["why"])
def test_a_token_is_narrowed_as_the_vector_says(vector: dict[str, Any]) -> None:
    assert narrowed(Secret(vector["token"]), vector["to"]).matches(vector["expect"])


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=lambda vector: vector["why"])
def test_a_narrowing_is_refused_as_the_vector_says(vector: dict[str, Any]) -> None:
    with pytest.raises(BrokerError, match=vector["code"]):
        narrowed(Secret(vector["token"]), vector["to"])


@pytest.mark.parametrize("vector", VECTORS["narrowed"], ids=lambda vector: vector["why"])
def test_a_reader_without_our_code_finds_every_signature_good(vector: dict[str, Any]) -> None:
    """The construction in five lines: HMAC-SHA256 from the root, over the locator and then over each caveat's text."""
    prefix, locator, *caveats, signature = vector["expect"].split(".")
    made = hmac.digest(base64.urlsafe_b64decode(VECTORS["root"]), b"oabt1." + locator.encode(), hashlib.sha256)
    for caveat in caveats:
        made = hmac.digest(made, caveat.encode(), hashlib.sha256)
    assert ("oabt", VECTORS["locator"]) == (prefix, locator)
    assert base64.urlsafe_b64encode(made).decode().rstrip("=") == signature


def test_the_vectors_are_what_the_code_makes() -> None:
    assert VECTORS == document()
