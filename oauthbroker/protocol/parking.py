"""What a browser is given that came back with a code which nobody redeems yet: something to vouch for it by."""

from __future__ import annotations

from datetime import timedelta

from oauthbroker.apps import Vouching
from oauthbroker.clock import Clock, random_text
from oauthbroker.protocol.authorize import code_challenge
from oauthbroker.protocol.callback import ValidCallback
from oauthbroker.records import Login, Parked
from oauthbroker.records.parked import PARKED_SECONDS, code_of
from oauthbroker.secret import Secret


def new_parked(clock: Clock, locator: str, kind: Vouching, callback: ValidCallback) -> Parked:
    """The callback's code with a fresh proof: 40 bits that a person can say, else the session's locator and 256 bits;
    for a login also a verifier and a nonce (RFC 7636 section 4.1)."""
    spoken = kind == "channelCode"
    proof = Secret(code_of(clock.random_bytes(5)) if spoken else locator + random_text(clock, 256))
    verifier = Secret(random_text(clock, 256))
    login = Login(verifier, code_challenge(verifier), Secret(random_text(clock, 256)))
    until = clock.now() + timedelta(seconds=PARKED_SECONDS)
    return Parked(kind, callback.code, proof, until, login=login if kind == "brokerLogin" else None)
