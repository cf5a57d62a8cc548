"""Every preset is played: a person connects at a provider that demands and answers what its documentation says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from oauthbroker.model.apps import App
from oauthbroker.model.provider_habits import Habits, Revocation
from oauthbroker.providers import presets
from oauthbroker.providers.preset import Preset
from oauthbroker.testing import Canaries, TestClock
from tests.kit.preset_coverage import unplayed
from tests.kit.preset_plays import Play, Refusal, plays, programmes
from tests.kit.preset_stage import Stage, account_name

REFUSALS = [
    pytest.param(play, refusal, id=f"{play}: {refusal.at} {refusal.code} {number}")
    for play in plays()
    for number, refusal in enumerate(play.refusals, 1)
]


def cases(wanted: Callable[[Play], object] = lambda play: True) -> list[Any]:
    return [pytest.param(play, id=str(play)) for play in plays() if wanted(play)]


@pytest.fixture
def stage(tmp_path: Path, test_clock: TestClock, canaries: Canaries) -> Stage:
    return Stage(tmp_path, test_clock, canaries)


@pytest.mark.parametrize("play", cases())
async def test_a_grant_lives_as_the_documentation_says(play: Play, stage: Stage) -> None:
    await stage.live(play)


@pytest.mark.sample(60)
@pytest.mark.parametrize("play, refusal", REFUSALS)
async def test_its_way_to_say_no_is_understood(play: Play, refusal: Refusal, stage: Stage) -> None:
    await stage.refuse(play, refusal)


@pytest.mark.parametrize("play", cases(lambda play: play.expects.revoke))
async def test_a_revocation_reaches_it_in_its_own_way(play: Play, stage: Stage) -> None:
    await stage.revoke(play)


# --- the set as a whole


def test_every_preset_has_a_play_and_every_play_a_preset():
    assert set(presets()) == set(programmes())
    assert all(it.plays for it in programmes().values())


@pytest.mark.parametrize("name", presets())
def test_every_quirk_of_a_preset_is_played(name: str):
    played = [play for play in plays() if play.provider == name]
    assert [] == unplayed(presets()[name], played)


@pytest.mark.parametrize("name", presets())
def test_every_name_of_an_account_is_played(name: str):
    named, played = set(), set()
    for identity in (variant.identity for variant in presets()[name].variants().values()):
        rules = {"user": identity.user, "global": identity.global_}
        named |= {(mode, rule.name) for mode, rule in rules.items() if rule and rule.name}
    for play in (it for it in plays() if it.provider == name):
        rule = play.preset.identity.user if play.app.subject_mode == "user" else play.preset.identity.global_
        played |= {(play.app.subject_mode, rule.name)} if rule and account_name(play, rule) else set()
    assert named <= played


@pytest.mark.parametrize("name", presets())
def test_a_preset_names_the_hosts_of_its_api_or_says_why_there_are_none(name: str):
    preset = presets()[name]
    assert bool(preset.api_hosts) != bool(preset.no_api)


def test_there_are_ninety():
    assert len(presets()) >= 90


# --- no quirk is there for nothing

# These refuse more than the standard does, or matter only beside an ID token, as the unit tests of the protocol show; or
# say which of the kept members a tool is told, as test_provider_data shows; or are sent alike, and `check` tells them (pkce).
# And how many days a consent lasts is for a notice, as test_grant_ends shows.
ELSEWHERE = {"id_token_algorithms", "issuer_promised", "pkce", "user_info_kind", "tool_data", "refresh_token_days"}
STANDARD = {field.name: getattr(Habits(), field.name) for field in fields(Habits)}


def without(quirk: str, app: App) -> App:
    """The app as if its preset did not know this of its provider."""
    if quirk == "revoke":
        return replace(app, revocation=Revocation())
    unknown = {"keeps", "tool_data"} if quirk == "keeps" else {quirk}  # what tools are told is kept as well
    return replace(app, habits=replace(app.habits, **{each: STANDARD[each] for each in unknown}))


def quirks() -> Iterator[Any]:
    """(preset, mode, quirk) of every part of a preset beyond the standards; a mode for its own ways."""
    for name, preset in presets().items():
        usual = beyond_the_standard(preset)
        for mode, variant in {"": preset, **preset.variants()}.items():
            found = beyond_the_standard(variant)
            for quirk, value in found.items():
                if not mode or usual.get(quirk) != value:
                    yield pytest.param(name, mode, quirk, id=f"{name} {mode} {quirk}".replace("  ", " "))


def beyond_the_standard(preset: Preset) -> dict[str, Any]:
    habits = preset.habits()
    found = {quirk: getattr(habits, quirk) for quirk in STANDARD if quirk not in ELSEWHERE}
    own = preset.revocation()
    return {quirk: value for quirk, value in found.items() if value != STANDARD[quirk]} | (
        {"revoke": own} if own.kind == "own" else {}
    )


@pytest.mark.sample(30)
@pytest.mark.slow
@pytest.mark.parametrize("name, mode, quirk", [*quirks()])
async def test_without_a_quirk_some_play_fails(name: str, mode: str, quirk: str, stage: Stage) -> None:
    """So every quirk is shown to matter, and the provider of the plays to be strict."""
    stage.change = lambda app: without(quirk, app)
    variant = presets()[name].in_mode(mode)
    for play in plays():
        if play.provider == name and (not mode or play.preset == variant):
            if quirk == "scopeless" and play.app.scopes is None:
                return  # the loader wants scopes of every other app
            try:
                await _perform(stage, play)
            except AssertionError:
                return
    pytest.fail(f"nothing in the plays of {name} needs {quirk}")


async def _perform(stage: Stage, play: Play) -> None:
    await stage.live(play)
    for refusal in play.refusals:
        await stage.refuse(play, refusal)
    if play.expects.revoke:
        await stage.revoke(play)
