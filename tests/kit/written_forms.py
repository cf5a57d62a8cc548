"""The written form of each kind of the broker's own."""

from __future__ import annotations

from oauthbroker.config.written.kinds import OURS

SPECS = {kind: reader.model for kind, (reader,) in OURS.readers.items()}
