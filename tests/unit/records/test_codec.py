"""Decoding keeps nothing of its input."""

from __future__ import annotations

import sys

from oauthbroker.records import codec


def test_no_value_of_a_decoded_record_stays_in_a_cache() -> None:
    """Tokens are short strings. A parser that caches them would hold them after their record is gone."""
    body = codec.encode("Sample", {"spec": {"token": "only-here-1", "other": ["only-here-2"]}})
    spec = codec.decode("Sample", body)["spec"]
    alone = [f"never-seen-{len(body)}"]
    for holder, key in ((spec, "token"), (spec["other"], 0)):
        assert sys.getrefcount(holder[key]) == sys.getrefcount(alone[0])
