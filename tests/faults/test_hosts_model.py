"""The model of the several hosts finds each kind of fault, and nothing in a run without one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.hosts_model import LONGEST_REVOCATION, Facts, problems

GRACE = {"strict": 0, "forgiving": 30}
GOOD = """
admitted 1 turn-1 1
trusts 7
admitted 7 turn-1 4
over turn-1 2
granted s1 strict 0 3
received planner 0 s1 4
enqueued orders 1
enqueued orders 2
received orders 1 none 5
received orders 2 none 6
received orders 1 none 7
told 1 link:noGrant strict 0 - 1 2
told 1 ready strict 0 a1 10 11
intent 1 strict 0
told 1 ready strict 0 a2 20 21
revoking strict 0 30
revoked strict 0 30 32
told 1 ready strict 0 a2 31 33
told 7 ready strict 0 a2 34 35
told 1 link:revoked strict 0 - 32 33
told 1 link:noGrant strict 0 - 34 35
told 1 later:providerUnreachable strict 0 - 35 36
intent 1 forgiving 0
intent 1 forgiving 1
ended 1 forgiving uncertain b1
told 1 link:refreshUncertain forgiving 1 - 40 41
refused ask storeUnavailable
"""


def provider(**more: Any) -> dict[str, Any]:
    figures = [
        {"app": "strict", "redeemed": {"r1": 1}, "ended_by": None},
        {"app": "forgiving", "redeemed": {"r2": 2}, "ended_by": None},
    ]
    families = {"a1": 1, "a2": 1, "b1": 2}
    return {
        "figures": figures,
        "refusals": {},
        "requests": {"strict": 1, "forgiving": 2},
        "families": families,
    } | more


def found(lines: str, **more: Any) -> list[str]:
    facts = Facts()
    for line in lines.strip().splitlines():
        facts.hear(line.split())
    return problems(facts, provider(**more), GRACE)


def test_a_run_without_a_fault_has_no_problem() -> None:
    assert [] == found(GOOD)


def family(**more: Any) -> list[dict[str, Any]]:
    return [{"app": "strict", "redeemed": {"r1": 1}, "ended_by": None} | more]


FAULTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a grant is gone after a token": ("told 1 ready strict 1 a3 10 11\ntold 2 link:noGrant strict 1 - 12 13", {}, "('strict', 1): no grant 2.000 s after"),
    "a grant is gone after a consent": ("granted s2 strict 1 11\nreceived planner 0 s2 12\ntold 2 link:noGrant strict 1 - 12 13", {}, "('strict', 1): no grant 1.000 s after"),
    "a grant is gone, and the revocation was before it": ("revoking strict 1 1\nrevoked strict 1 1 2\ntold 1 ready strict 1 a3 10 11\ntold 2 link:noGrant strict 1 - 12 13", {}, "('strict', 1): no grant"),
    "a grant is gone, and the revocation is another user's": ("revoking strict 2 11\nrevoked strict 2 11 12\ntold 1 ready strict 1 a3 10 11\ntold 2 link:noGrant strict 1 - 12 13", {}, "('strict', 1): no grant"),
    "a grant is gone, and the revocation began after it": ("told 1 ready strict 1 a3 10 11\ntold 2 link:noGrant strict 1 - 12 13\nrevoking strict 1 14\nrevoked strict 1 14 15", {}, "('strict', 1): no grant"),
    "a grant is gone long after a revocation that was refused": ("revoking strict 1 1\nunrevoked strict 1 1 5\ntold 1 ready strict 1 a3 10 11\ntold 2 link:noGrant strict 1 - 12 13", {}, "('strict', 1): no grant"),
    "a token after its revocation": ("told 1 ready strict 0 a2 40 41", {}, "('strict', 0): a token was handed out 8.000 s after the revocation"),
    "a token after its revocation, on a host with a feed": ("told 7 ready strict 0 a2 35.5 36", {}, "('strict', 0): a token was handed out 3.500 s after the revocation"),
    "a turn after its end, on a host with a feed": ("admitted 7 turn-1 5.1", {}, "turn-1 was admitted 3.100 s after its end"),
    "a turn after its end": ("admitted 1 turn-1 3", {}, "turn-1 was admitted 1.000 s after its end"),
    "an event out of order": ("enqueued pay 1\nenqueued pay 2\nreceived pay 2 none 1\nreceived pay 1 none 2", {}, "pay: delivered in the order [2, 1]"),
    "an event that is lost": ("enqueued pay 1", {}, "an acknowledged event was never delivered: ('pay', 1)"),
    "a consent whose end is not told": ("granted s3 strict 1 11", {}, "no event told the end of session s3"),
    "a refresh token that is sent twice": ("", {"figures": family(app="forgiving", redeemed={"r2": 3})}, "forgiving: 0 tokens refused and 2 repeated after 1 lost answers"),
    "a refresh token that is refused": ("", {"refusals": {"strict": 1}}, "strict: 1 tokens refused and 0 repeated"),
    "a spent token that buys tokens": ("intent 1 strict 1", {"figures": family(redeemed={"r1": 2})}, "strict: a spent token bought tokens"),
    "a request without an intent": ("", {"requests": {"strict": 2}}, "strict: requests without an intent"),
    "a grant that ends as quarantined": ("ended 1 strict quarantined a1", {}, "1 grants ended as quarantined"),
    "a grant that ends as dead": ("ended 1 strict dead a1", {}, "1 grants ended as dead, 0 families for a reuse"),
    "an expired grant that is none": ("told 1 link:expired strict 1 - 1 2", {}, "1 times: link:expired"),
    "a call that fails for good": ("told 1 failed:appUnknown strict 1 - 1 2", {}, "1 times: failed:appUnknown"),
    "a link for a wrong reason": ("told 1 link:scopes strict 1 - 1 2", {}, "1 times: link:scopes"),
    "a key that is unknown": ("refused revoke keyUnknown", {}, "1 times: revoke: keyUnknown"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_a_problem_and_the_only_one(fault: str) -> None:
    lines, more, sentence = FAULTS[fault]
    (problem,) = [each for each in found(GOOD + lines, **more) if not each.endswith("calls")]
    assert sentence in problem


UNORDERED = {
    "a token of the grant before, after one of the next": "told 1 ready strict 0 c1 40 41\ntold 1 ready strict 0 a2 42 43",
    "a grant that comes back": "revoking forgiving 1 11\ntold 1 ready forgiving 1 b1 10 12"
    "\ntold 2 link:noGrant forgiving 1 - 13 14\ntold 1 ready forgiving 1 b1 15 16",
}


@pytest.mark.parametrize("name", UNORDERED)
def test_answers_of_all_hosts_that_no_order_explains_are_a_problem(name: str) -> None:
    families = {"a1": 1, "a2": 1, "b1": 2, "c1": 3}
    problems = found(GOOD + UNORDERED[name], families=families)
    assert [each for each in problems if "no order explains its" in each]


def test_a_revocation_whose_process_was_killed_explains_a_missing_grant_for_a_minute() -> None:
    reported = "revoking strict 1 10\ntold 1 ready strict 1 a3 {0} {1}\ntold 2 link:noGrant strict 1 - {2} {3}"
    early, late = 11, 10 + int(LONGEST_REVOCATION)
    assert [] == found(GOOD + reported.format(early, early + 1, late + 1, late + 2))
    assert 1 == len(found(GOOD + reported.format(late, late + 1, late + 2, late + 3)))
