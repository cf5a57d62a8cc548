"""A refresh whose provider cannot prove itself: nothing is sent, nothing is lost, and no user is asked again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest

from oauthbroker.core.errors import Code
from oauthbroker.model.token_results import Failed, Ready
from oauthbroker.records import Grant, Token
from oauthbroker.testing import Authority, Canaries, IdentityProvider
from oauthbroker.testing.authority import Certificate, Fault
from tests.kit.running_broker import ALICE, Harness, running, user_app

FAULTS: list[Fault] = [fault for fault in get_args(Fault) if fault]


async def plant(harness: Harness) -> Grant:
    """A grant whose token has just ended, as it would lie there had the certificate been good yesterday."""
    app, now = harness.broker.bundle.apps["mail"], harness.clock.now()
    old = Token(
        access_token=Canaries.active().mint("access token"),
        token_type="Bearer",
        refresh_token=Canaries.active().mint("refresh token"),
        expires_at=now,
        lifetime_seconds=3600,
    )
    grant = Grant(
        app="mail", provider="oidc", subject=ALICE, flow="authorization_code", scopes=app.scopes, token=old,
        created_at=now - timedelta(days=1), updated_at=now - timedelta(hours=1), registration=app.registration,
        pinned=(harness.idp.issuer, "U234567"),
    )  # fmt: skip
    await harness.repository.save_grant(grant, expect=0)
    return grant


async def ask(certificate: Certificate, ca: str = "") -> tuple[object, Grant, Grant | None, IdentityProvider]:
    """The tool's answer, the grant before and after, and the provider with the requests that it got."""
    async with (
        IdentityProvider(tls=certificate) as idp,
        running(idp, [replace(user_app(idp), provider_ca=ca)], background=False) as harness,
    ):
        before = await plant(harness)
        return await harness.ask("mail"), before, await harness.grant("mail"), idp


@pytest.fixture
def trusted(tmp_path: Path) -> Authority:
    """The authority that the app names."""
    return Authority(tmp_path)


@pytest.mark.case("35")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_refresh_over_a_bad_certificate_sends_nothing_and_keeps_the_grant(trusted: Authority, fault: Fault):
    answer, before, after, idp = await ask(trusted.issue(fault), trusted.file.read_text())
    assert isinstance(answer, Failed)
    assert (Code.PROVIDER_UNREACHABLE, True) == (answer.code, answer.retryable)
    assert [] == idp.requests
    assert after is not None
    assert before == replace(after, updated_at=before.updated_at)  # no intent stays: the token was not sent


@pytest.mark.case("35")
async def test_an_untrusted_authority_is_refused_for_any_certificate(tmp_path: Path):
    answer, before, after, idp = await ask(Authority(tmp_path).issue())
    assert isinstance(answer, Failed)
    assert (Code.PROVIDER_UNREACHABLE, []) == (answer.code, idp.requests)
    assert after is not None
    assert before.token == after.token


@pytest.mark.case("35")
async def test_the_same_refresh_reaches_a_provider_that_proves_itself(trusted: Authority):
    answer, _, _, idp = await ask(trusted.issue(), trusted.file.read_text())
    assert not isinstance(answer, Ready)  # the planted token is none of the provider's
    assert 1 == idp.count("refresh_token")
