"""The popular entries of the largest public catalogue: each has an app that loads, reaches its API, and is played."""

from __future__ import annotations

from pathlib import Path

import pytest

from oauthbroker.injection.targets import target_of
from oauthbroker.model.apps import App
from tests.kit.credential_plays import credential_plays
from tests.kit.popular_entries import entries, popular_apps

LATER = {"github-app"}


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, App]:
    return popular_apps(tmp_path_factory.mktemp("popular"))


def test_all_but_one_of_the_36_have_an_app(apps: dict[str, App]):
    assert (36, LATER) == (len(entries()), set(entries()) - set(apps))


@pytest.mark.parametrize("name", sorted(set(entries()) - LATER))
def test_its_app_is_that_of_its_play_and_reaches_its_api(name: str, apps: dict[str, App]):
    entry, app = entries()[name], apps[name]
    assert target_of(app, "GET", entry.calls)
    if entry.kind == "CredentialApp":
        assert entry.provider in credential_plays()
    elif entry.play:
        play = entry.oauth_play()
        assert (play.app.flow, play.app.subject_mode) == (app.flow, app.subject_mode)


@pytest.mark.parametrize("name", sorted(set(entries()) - LATER))
def test_a_test_plays_it(name: str):
    stories = [*entries()[name].stories()]
    assert stories
    for file, function in stories:
        text = (Path(__file__).parents[3] / file).read_text("utf-8")
        assert f"async def {function.partition('[')[0]}(" in text
