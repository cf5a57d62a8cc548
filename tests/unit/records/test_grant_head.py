"""The head of a grant says what the grant says, and a record that holds a text has its bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from oauthbroker.model.turn import ResumeTarget
from oauthbroker.records import Grant
from oauthbroker.records.codec import text_in_plaintext
from oauthbroker.records.grant_head import GrantHead
from tests.unit.records import kit


@given(kit.grants)
def test_a_head_says_what_its_grant_says(grant: Grant) -> None:
    head = GrantHead.from_plaintext(grant.to_plaintext())
    assert GrantHead.of(grant) == head
    assert (grant.id, not grant.revoked or grant.revocation_pending) == (head.id, head.unended)


@given(kit.texts, kit.targets)
def test_a_record_that_names_a_subject_anywhere_has_its_bytes(subject: str, target: ResumeTarget) -> None:
    named_by: tuple[dict[str, Any], ...] = {"subject": subject}, {"authorized_by": subject}, {"resume": target}
    for number, changes in enumerate(named_by):
        text = subject if number < 2 else target.agent_name
        assert text_in_plaintext(text) in kit.grant(**changes).to_plaintext()
