"""Signatures of webhooks, good and bad ones."""

from __future__ import annotations

import hashlib
import hmac
import time
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker import BrokerError
from oauthbroker.flowtools.serving.webhooks import Webhooks, verified
from tests.unit.flowtools.serving.webhook_kit import BODY, NOW, OLD, OTHER, SECRET, standard

pytestmark = pytest.mark.rule("000-trigger-webhook")


def github(secret: str = "plain secret of a hub") -> dict[str, str]:
    return {"x-hub-signature-256": "sha256=" + hmac.digest(secret.encode(), BODY, "sha256").hex()}


def stripe(secret: str = "plain secret of a shop", at: int = NOW) -> dict[str, str]:
    return {
        "stripe-signature": f"t={at},v1={hmac.digest(secret.encode(), f'{at}.'.encode() + BODY, 'sha256').hex()},v0=x"
    }


def assess(headers: dict[str, str], form: str = "standard", *secrets: str, body: bytes = BODY) -> str:
    return verified(form, headers, body, secrets=secrets or (SECRET,), now=NOW, seconds=300)


def test_the_vector_of_standard_webhooks_is_taken() -> None:
    """The example of the reference libraries."""
    body = b'{"test": 2432232314}'
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    given: dict[str, Any] = {"secrets": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], "now": 1614265330, "seconds": 300}
    assert headers["webhook-id"] == verified("standard", headers, body, **given)


GOOD: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {
    "standard": (standard(), "standard", ()),
    "the older of two secrets": (standard(OLD), "standard", (SECRET, OLD)),
    "one of several signatures": (
        {**standard(), "webhook-signature": f"v1a,x v1,AAAA {standard()['webhook-signature']}"},
        "standard",
        (),
    ),
    "at the edge of the window": (standard(at=NOW - 300), "standard", ()),
    "a clock ahead": (standard(at=NOW + 300), "standard", ()),
    "github": (github(), "github", ("plain secret of a hub",)),
    "stripe": (stripe(), "stripe", ("plain secret of a shop",)),
}


@pytest.mark.parametrize("case", GOOD)
def test_a_signed_event_is_taken_by_its_id(case: str) -> None:
    headers, form, secrets = GOOD[case]
    event = assess(headers, form, *secrets)
    assert event == ("msg_1" if form == "standard" else hashlib.sha256(BODY).hexdigest())


BAD: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {
    "no headers": ({}, "standard", ()),
    "another secret": (standard(OTHER), "standard", ()),
    "another id": ({**standard(), "webhook-id": "msg_2"}, "standard", ()),
    "another time": ({**standard(), "webhook-timestamp": str(NOW - 1)}, "standard", ()),
    "another body": (standard(body=b"{}"), "standard", ()),
    "too old": (standard(at=NOW - 301), "standard", ()),
    "too new": (standard(at=NOW + 301), "standard", ()),
    "a time that is no number": (standard(at="soon"), "standard", ()),
    "a signed request without an id": (standard(event=""), "standard", ()),
    "another version of signature": (
        {**standard(), "webhook-signature": standard()["webhook-signature"].replace("v1,", "v2,")},
        "standard",
        (),
    ),
    "a signature that is no ASCII": ({**standard(), "webhook-signature": "v1,é"}, "standard", ()),
    "github, another secret": (github("other"), "github", ("plain secret of a hub",)),
    "github, nothing": ({}, "github", ("plain secret of a hub",)),
    "stripe, too old": (stripe(at=NOW - 301), "stripe", ("plain secret of a shop",)),
    "stripe, without a time": ({"stripe-signature": "v1=x"}, "stripe", ("plain secret of a shop",)),
}


@pytest.mark.parametrize("case", BAD)
def test_an_event_that_is_not_signed_is_refused(case: str) -> None:
    headers, form, secrets = BAD[case]
    with pytest.raises(BrokerError) as caught:
        assess(headers, form, *secrets)
    assert "unauthenticated" == caught.value.code.value


async def test_the_version_whose_secret_has_signed_an_event_takes_it() -> None:
    """Another version, with another secret, begins to serve while the body comes."""
    old, new = (SimpleNamespace(tool=tool(secret, version)) for version, secret in ((1, "old"), (2, "new")))
    taken: list[Any] = []
    service = SimpleNamespace(serving={"note": old}, spec=SimpleNamespace(webhook_seconds=300))
    here = Webhooks(service, SimpleNamespace(plugin_state=lambda plugin: State()))  # type: ignore[arg-type]

    async def body() -> bytes:
        service.serving = {"note": new}
        return BODY

    async def accept(flow: Any, data: Any, key: str) -> Any:
        taken.append(flow)
        return SimpleNamespace(id="r")

    service.accept = accept
    headers = standard(OLD, at=int(time.time()))
    request = SimpleNamespace(path_params={"name": "note"}, headers=headers, body=body, state=SimpleNamespace())
    assert "webhook-note" == await here.authenticate(request)  # type: ignore[arg-type]
    call = SimpleNamespace(request=request, path=SimpleNamespace(name="note"))
    assert 202 == (await here.receive(call)).status_code
    assert [old] == taken


class State:
    async def get(self, key: str) -> list[str]:
        return {"webhook/old": [OLD], "webhook/new": [SECRET]}[key]


def tool(secret: str, version: int) -> Any:
    trigger = SimpleNamespace(type="webhook", signature="standard", webhook_secret=secret)
    return SimpleNamespace(name="note", version=version, trigger=trigger)
