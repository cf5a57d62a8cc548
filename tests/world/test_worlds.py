"""Some worlds; `python -m tests.world` lives as many as one likes, and `make proof` many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.world import mutants
from tests.world.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
WORLDS = 100  # in one process
MOST_SECONDS = 540


def _world(*options: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.world", *options]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
    )


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2 * WORLDS, WORLDS))
def test_every_law_holds_in_every_world(first: int):
    done = _world("--worlds", str(WORLDS), "--seed", str(first))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"worlds: {WORLDS}\nseeds: {first} to {first + WORLDS - 1}\n" in done.stdout


@pytest.mark.slow
def test_a_seed_repeats_a_world_to_the_byte():
    first, second = (_world("--worlds", "1", "--seed", "21", "--trace", seed=seed).stdout for seed in ("0", "77"))
    assert "audit host" in first
    assert first.splitlines()[:-1] == second.splitlines()[:-1]  # the last one is the time that it took


@pytest.mark.slow
def test_a_planted_fault_breaks_a_law():
    done = _world("--mutant", "a token leaves without an audit entry", "--worlds", str(mutants.WORLDS))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "each audit entry is written before its act" in done.stdout


@pytest.mark.parametrize("name", MUTANTS)
def test_each_fault_can_be_planted(name: str):
    mutant = MUTANTS[name]
    source = ROOT.joinpath(*mutant.module.split(".")).with_suffix(".py").read_text("utf-8")
    assert 1 == source.count(mutant.before)
