"""References to apps: a kind that the app has not is refused, and for the app of a key it is said what to call."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.model.token_request import AppRef, NeverHandedOut, call_ref


class Named(NamedTuple):
    kind: str


APPS = {"meter": Named("CredentialApp"), "mail": Named("OAuthApp")}


@pytest.mark.parametrize("ref", ["OAuthApp/meter", "OAuthApp/meter@work", {"kind": "OAuthApp", "name": "meter"}])
def test_a_key_asked_for_as_a_token_names_what_to_call_in_each_language(ref: AppRef) -> None:
    """Clients over HTTP write `OAuthApp` for a bare name."""
    with pytest.raises(NeverHandedOut) as refused:
        call_ref(ref, apps=APPS)
    assert Code.REQUEST_INVALID is refused.value.code
    for way in ("ctx.oauth.client(", "fetch(...) ", "TypeScript", "/v1/proxy"):
        assert way.strip() in refused.value.message()
        assert way.strip() in refused.value.message("ko")


def test_an_app_with_tokens_named_as_one_of_a_key_is_no_key() -> None:
    with pytest.raises(BrokerError) as refused:
        call_ref("CredentialApp/mail", apps=APPS)
    assert (Code.REQUEST_INVALID, "otherKind") == (refused.value.code, refused.value.hint)
    assert "Name it OAuthApp/mail" in refused.value.message()


@pytest.mark.parametrize(("ref", "name"), [("meter", "meter"), ("CredentialApp/meter", "meter"), ("mail@a", "mail@a")])
def test_a_bare_name_and_the_right_kind_are_taken(ref: str, name: str) -> None:
    assert name == call_ref(ref, apps=APPS)
