"""A problem is shown as two sentences: the problem and the hint."""

from __future__ import annotations

import pytest

from oauthbroker.core.sentences import sentence, two_sentences


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("missing", "Missing."),
        ("a scope twice", "A scope twice."),
        ("another origin, so it would not come back", "Another origin, so it would not come back."),
        ("known here: env, secretRef", "Known here: env, secretRef."),
        ("no device endpoint is known here.", "No device endpoint is known here."),
        ("write https://...", "Write https://..."),
        ("http instead of https", "http instead of https."),
        ("spec.flow names no flow", "spec.flow names no flow."),
        ("valueFrom is empty", "valueFrom is empty."),
        ("other:KINDS is no tuple", "other:KINDS is no tuple."),
        ("client_id is empty", "client_id is empty."),
        ("`anyone` stands in a list", "`anyone` stands in a list."),
        ("'a' or 'b'", "'a' or 'b'."),
        ("Secret/slack is not set", "Secret/slack is not set."),
    ],
)
def test_a_sentence_has_a_capital_letter_and_a_full_stop_and_a_name_keeps_its_case(text: str, shown: str):
    assert shown == sentence(text)


def test_the_problem_stands_before_the_hint_and_a_missing_hint_leaves_no_gap():
    assert "Missing. Write it." == two_sentences("missing", "write it")
    assert "Missing." == two_sentences("missing", "")
