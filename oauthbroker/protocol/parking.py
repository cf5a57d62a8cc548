"""What a browser is given that came back with a code which nobody redeems yet: something to vouch for it by."""

from __future__ import annotations

from datetime import timedelta

from oauthbroker.apps import Vouching
from oauthbroker.clock import Clock, random_text
from oauthbroker.protocol.callback import ValidCallback
from oauthbroker.records import Parked
from oauthbroker.records.parked import PARKED_SECONDS, code_of
from oauthbroker.secret import Secret


def new_parked(clock: Clock, locator: str, kind: Vouching, callback: ValidCallback) -> Parked:
    """Makes what the browser gets: `runtimeConfirm`'s handle (the session's locator and 256 bits), or `channelCode`'s
    code (40 bits that a person can say); kept as the proof beside the callback's code."""
    spoken = kind == "channelCode"
    proof = Secret(code_of(clock.random_bytes(5)) if spoken else locator + random_text(clock, 256))
    return Parked(kind, callback.code, proof, clock.now() + timedelta(seconds=PARKED_SECONDS))
