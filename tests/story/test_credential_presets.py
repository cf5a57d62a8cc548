"""Every preset of a static credential is played: a person types one, the provider's API is asked about it as its
documentation says, and a tool's request carries it and never sees it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from oauthbroker.injection.errors import InjectionError
from oauthbroker.model.apps import App
from oauthbroker.model.provider_api import ApiHost
from oauthbroker.model.token_results import AuthorizationRequired
from oauthbroker.model.turn import Turn
from oauthbroker.providers.credentials import credential_presets
from oauthbroker.testing import IdentityProvider, TestClock
from tests.kit.credential_plays import CALL, CredentialPlay, PlayedApi, credential_plays, loaded_apps
from tests.kit.running_broker import ALICE, BOB, Harness, running, turn
from tests.story.keys_kit import type_key

NO_PROVIDER = cast("IdentityProvider", None)


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, App]:
    return loaded_apps(tmp_path_factory.mktemp("plays"))


def test_every_preset_has_a_play_and_every_play_a_preset():
    assert [*credential_presets()] == [*credential_plays()]


@pytest.mark.parametrize("name", credential_plays())
async def test_a_credential_is_checked_and_carried_as_the_documentation_says(
    name: str, apps: dict[str, App], test_clock: TestClock
) -> None:
    play, app = credential_plays()[name], apps[name]
    first = app.api.hosts[0]
    assert isinstance(first, ApiHost)
    assert (play.called_at, "https") == (first.authority, first.scheme)
    assert app.credential is not None
    check = app.credential.verification
    assert play.checked_at == (check.host if check is not None and check.host else first.authority)
    api = PlayedApi(play)
    async with api.server, running(NO_PROVIDER, [api.moved(app)], clock=test_clock) as harness:
        owner = turn(user=play.account or ALICE)
        await refused_if_wrong(harness, name, play, owner)
        if play.account:
            await refused_for_another_account(harness, name, play)
        await stored_after_the_check(harness, name, api, owner)
        await carried_and_masked(harness, name, api, owner)


async def refused_if_wrong(harness: Harness, name: str, play: CredentialPlay, owner: Turn) -> None:
    page = await typed(harness, name, {field: f"{value}x" for field, value in play.typed.items()}, owner)
    assert (403, True) == (page.status, "did not accept" in page.text), page.text
    assert isinstance(await sent(harness, name, owner), AuthorizationRequired)


async def refused_for_another_account(harness: Harness, name: str, play: CredentialPlay) -> None:
    page = await typed(harness, name, play.typed, turn(user=BOB))
    assert (403, True) == (page.status, "another account" in page.text), page.text
    assert isinstance(await sent(harness, name, turn(user=BOB)), AuthorizationRequired)


async def stored_after_the_check(harness: Harness, name: str, api: PlayedApi, owner: Turn) -> None:
    page = await typed(harness, name, api.play.typed, owner)
    assert (200, True) == (page.status, "is connected" in page.text), (page.text, api.seen[-1])
    line, call = api.seen[-1]
    assert (api.play.request, api.play.body) == (line, call.body.decode())
    assert api.play.check_headers.items() <= call.headers.items()


async def carried_and_masked(harness: Harness, name: str, api: PlayedApi, owner: Turn) -> None:
    answer = await sent(harness, name, owner)
    assert 200 == answer.status_code, api.seen[-1]
    assert f"GET {api.play.call}" == api.seen[-1][0]
    secrets = [*api.play.typed.values(), *([api.play.basic_text] if api.play.basic else [])]
    assert [] == [secret for secret in secrets if secret in answer.text]
    assert "*" * 8 in answer.text, "it was repeated, and masked"


async def typed(harness: Harness, name: str, values: dict[str, str], owner: Turn) -> Any:
    asked = await sent(harness, name, owner)
    assert isinstance(asked, AuthorizationRequired), asked
    form: dict[str, Any] = {f"credential.{field}": value for field, value in values.items()}
    return await type_key(harness, asked, **form)


async def sent(harness: Harness, name: str, owner: Turn) -> Any:
    """A tool's request: its answer, or the result that its error carries."""
    async with harness.broker.oauth(owner).client(name) as client:
        try:
            return await client.get(CALL)
        except InjectionError as error:
            return error.result
