"""The team's credential: when a user who has none gets it, and how long values of a service outside are used without another read."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from oauthbroker import TurnAuth
from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.model.outside_values import OutsideValue
from oauthbroker.model.static_credential import CredentialField, Placement, StaticCredential, packed
from oauthbroker.observability.logging import json_log
from oauthbroker.records import Grant
from oauthbroker.testing import TestClock
from oauthbroker.tokens.team_credentials import TeamCredentials
from oauthbroker.tokens.team_values import FRESH_SECONDS, KEPT_SECONDS, PAUSE_SECONDS, RETRY_SECONDS, TeamValues
from tests.kit.samples import NOW, app_with, grant_with

ALICE, TEAM = "acme:user:1", "acme:team:1"
PLACE: Any = "vault:mail"
CREDENTIAL = StaticCredential(
    fields=(CredentialField(name="key", title="Key"),),
    placement=Placement(kind="headers", texts={"X-Api-Key": "{key}"}),
    outside={"key": PLACE},
    team_fallback=True,
)
APP = app_with(credential=CREDENTIAL)
BOTH = TurnAuth(subjects={"user": ALICE, "global": TEAM})


class Vault:
    """A service with one value, which may be away."""

    def __init__(self) -> None:
        self.clock = TestClock(NOW, frozen=True)
        self.reads, self.value = 0, "v1"
        self.failure: Code | None = None
        self.values = TeamValues(read=self.read, clock=self.clock, log=json_log(io.StringIO(), self.clock))

    def read(self, places: Iterable[OutsideValue]) -> dict[OutsideValue, Secret]:
        assert [PLACE] == [*places]
        self.reads += 1
        if self.failure is not None:
            raise BrokerError(self.failure)
        return {PLACE: Secret(self.value)}

    async def asked(self, rejected: str | None = None) -> tuple[int, Code | str]:
        """Ask for the value. Return how often the service was asked so far, and the value or why there is none."""
        refused = packed({"key": rejected}) if rejected is not None else None
        try:
            found = await self.values.of(APP, refused)
        except BrokerError as error:
            return self.reads, error.code
        for value in ("v1", "v2"):
            if found == packed({"key": value}):
                return self.reads, value
        return self.reads, ""


async def test_a_value_is_read_again_once_it_is_no_longer_fresh() -> None:
    vault = Vault()
    for seconds, reads in ((0, 1), (FRESH_SECONDS - 0.5, 1), (0.5, 2)):
        vault.clock.advance(seconds)
        assert (reads, "v1") == await vault.asked()


async def test_a_value_that_the_api_rejected_is_read_again_after_a_pause() -> None:
    vault = Vault()
    assert (1, "v1") == await vault.asked()
    vault.value = "v2"
    assert (1, "v1") == await vault.asked(rejected="v1")
    vault.clock.advance(PAUSE_SECONDS)
    assert (1, "v1") == await vault.asked(rejected="another")
    assert (2, "v2") == await vault.asked(rejected="v1")


async def test_a_value_of_a_service_that_is_away_is_used_for_a_day() -> None:
    vault = Vault()
    assert (1, "v1") == await vault.asked()
    vault.failure = Code.PROVIDER_UNREACHABLE
    vault.clock.advance(KEPT_SECONDS - 1)
    assert (2, "v1") == await vault.asked()
    vault.clock.advance(1)
    assert (2, Code.PROVIDER_UNREACHABLE) == await vault.asked()
    vault.clock.advance(RETRY_SECONDS)
    vault.failure = None
    assert (3, "v1") == await vault.asked()


async def test_a_value_that_was_removed_there_is_used_no_longer() -> None:
    vault = Vault()
    assert (1, "v1") == await vault.asked()
    vault.failure = Code.APP_MISCONFIGURED
    vault.clock.advance(FRESH_SECONDS)
    assert (2, Code.APP_MISCONFIGURED) == await vault.asked()


@pytest.mark.parametrize(
    ("auth", "changes", "key"),
    [
        (BOTH, {}, GrantKey("mail", TEAM)),
        (BOTH, {"team_fallback": False}, None),
        (TurnAuth(subjects={"user": ALICE, "global": ALICE}), {}, None),
        (TurnAuth(subjects={"user": ALICE}), {}, None),
        (None, {}, None),
    ],
    ids=["the team's", "not for this app", "the team itself asks", "no team", "no subjects"],
)
def test_a_user_without_a_credential_has_the_one_of_the_turns_team(auth: Any, changes: Any, key: Any) -> None:
    nothing: Any = None
    team = TeamCredentials(repository=nothing, values=nothing, clock=nothing)
    caller: Any = SimpleNamespace(turn=SimpleNamespace(auth=auth))
    app = replace(APP, credential=replace(CREDENTIAL, **changes))
    call: Any = SimpleNamespace(app=app, key=GrantKey("mail", ALICE))
    assert key == team.key(caller, call)


@pytest.mark.parametrize(
    ("values", "auth", "stored", "expected"),
    [
        (Secret("v"), None, None, "configured"),
        (None, BOTH, grant_with(subject=TEAM), "stored"),
        (None, BOTH, None, None),
        (None, None, grant_with(subject=TEAM), None),
    ],
    ids=["of the configuration", "of the store", "the team has none", "no subjects"],
)
async def test_the_teams_credential_is_the_configured_one_or_else_the_stored_one(
    values: Secret | None, auth: Any, stored: Grant | None, expected: str | None
) -> None:
    async def configured(*_: object) -> Secret | None:
        return values

    async def read(key: GrantKey) -> Any:
        assert key == GrantKey("mail", TEAM)
        return None if stored is None else SimpleNamespace(record=stored)

    parts: Any = SimpleNamespace(of=configured), SimpleNamespace(grant=read)
    team = TeamCredentials(values=parts[0], repository=parts[1], clock=TestClock(NOW, frozen=True))
    caller: Any = SimpleNamespace(turn=SimpleNamespace(auth=auth))
    call: Any = SimpleNamespace(app=APP, key=GrantKey("mail", ALICE), rejected=None)
    found = await team.grant(caller, call)
    kinds = {None: None, ALICE: "configured", TEAM: "stored"}
    assert expected == kinds[found.subject if found is not None else None]
    assert values is None or (found is not None and found.token is not None and found.token.access_token == values)
