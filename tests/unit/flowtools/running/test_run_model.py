"""The model of a run keeps its invariants with each combination of faults, and is not blind: each rule that is dropped
shows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from oauthbroker.flowtools.running.lifecycle import MOST_TAKES
from tests.kit.forms import is_long
from tests.unit.flowtools.running import run_model
from tests.unit.flowtools.running.run_model import REFUNDED, REFUNDING, SENDING, SENT, SETTLES, WORKS, Rules, search

pytestmark = pytest.mark.rule("run-kills")
PLACES = (WORKS, SENDING, SENT, SETTLES, REFUNDING, REFUNDED)
POISONS = [None, *product(("crash", "raise"), PLACES)]
FAULTS = 4 if is_long() else 2


@pytest.mark.sample(13)
@pytest.mark.parametrize("poison", POISONS, ids=str)
@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
@pytest.mark.parametrize("has_key", [True, False], ids=["idempotent", "a call alone"])
def test_each_state_keeps_the_invariants_and_ends(keys: bool, has_key: bool, poison: tuple[str, str] | None) -> None:
    states, wrong, endless = search(Rules(keys=keys, has_key=has_key, poison=poison), FAULTS)
    assert ("", 0) == (wrong, endless)
    assert states > 10


MUTANTS: dict[str, tuple[Rules, str]] = {
    "no fence": (Rules(fence=False), "I"),
    "a call that began nothing is done later": (Rules(abandons=False), "I8"),
    "503 where the row cannot be read": (Rules(row_answers=False), "I8"),
    "each failed run is tried again": (Rules(redrives_any=True, keys=False), "I"),
    "an abandoned run is tried again": (Rules(redrives_abandoned=True), "I8"),
    "no bound of takes": (Rules(breaks=False, keys=True, poison=("crash", SENDING)), "endless"),
    "neither a handler nor a bound": (Rules(handler=False, breaks=False, keys=True, poison=("raise", SENT)), "endless"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_dropped_shows(name: str) -> None:
    rules, what = MUTANTS[name]
    _, wrong, endless = search(rules, 3 if is_long() else 2)
    assert endless if what == "endless" else wrong.startswith(what), (wrong, endless)


def test_the_bound_of_takes_ends_a_run_also_without_the_handler() -> None:
    for poison in POISONS:
        _, _, endless = search(replace(Rules(handler=False), poison=poison), 2)
        assert 0 == endless, poison
    assert run_model.MOST_TAKES <= MOST_TAKES
