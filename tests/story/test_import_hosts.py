"""Imports with the same key on two hosts of one database: each line becomes one grant, and both get one answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.audit import GrantImported
from oauthbroker.core.secret import Secret
from oauthbroker.grants.import_requests import AT_ONCE
from oauthbroker.testing import Canaries, IdentityProvider
from tests.kit import postgres
from tests.story.api.kit import Answer, Callers
from tests.story.hosts_kit import hosts

DATABASE = "import_hosts"


@pytest.fixture
def url(postgres_server: postgres.Server) -> Secret:
    postgres_server.new_database(DATABASE)
    return postgres_server.url(DATABASE)


@pytest.mark.slow
async def test_the_same_key_on_two_hosts_at_once(
    url: Secret, tmp_path: Path, identity_provider: IdentityProvider, canaries: Canaries
) -> None:
    token = canaries.mint("access token").reveal()
    line = {"app": "mail", "accessToken": token, "expiresAt": "2099-01-01T00:00:00Z"}
    lines = [line | {"subject": f"idp:user:N{number}"} for number in range(3 * AT_ONCE)]
    body = "".join(json.dumps(each) + "\n" for each in lines).encode()
    async with hosts(2, url, tmp_path, identity_provider) as both:
        first = await Callers.of(both[0])
        callers = [first.operator, Callers(both[1], first.runtime, first.operator).holding(first.operator.bearer or "")]

        async def answered(caller: Any) -> Answer:
            for _ in range(200):
                answer: Answer = await caller.send(
                    "POST", "/v1/grants", body=body, headers={"Idempotency-Key": "k"}, kind="application/x-ndjson"
                )
                if answer.status != 503:
                    return answer
                await asyncio.sleep(0.05)
            raise AssertionError(answer.text)

        one, two = await asyncio.gather(*map(answered, callers))
        assert (200, one.json()) == (two.status, two.json())
        assert (len(lines), len(lines)) == (one.json()["lines"], one.json()["imported"])
        entries = [it for host in both for it in host.audit.entries if isinstance(it, GrantImported)]
        assert len(lines) == len(entries)
