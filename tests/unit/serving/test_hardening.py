"""What a process of ours asks of the system."""

from __future__ import annotations

import resource

import pytest

from oauthbroker.serving.hardening import raise_descriptor_limit

BOUNDLESS = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "may", "becomes"),
    [
        (1024, 4096, 2000, 2000, 2000),
        (1024, 4096, 9000, 4096, 4096),
        (1024, BOUNDLESS, 9000, 9000, 9000),
        (4096, 4096, 2000, 4096, 4096),
        (BOUNDLESS, BOUNDLESS, 2000, 2000, BOUNDLESS),
        (1024, 1024, 2000, 1024, 1024),
    ],
)
def test_a_process_takes_as_many_descriptors_as_it_needs_and_may_have(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, wanted: int, may: int, becomes: int
) -> None:
    limits = [soft, hard]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.__setitem__(slice(None), pair))
    assert may == raise_descriptor_limit(wanted)
    assert [becomes, hard] == limits
