"""Whether a broker of this store listens at an address. It proves it by a MAC over a number that the caller chose and
over its own port, so that no other program can pass the number on to a broker elsewhere."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from typing import Final

from oauthbroker.core.clock import Clock, random_text
from oauthbroker.core.errors import BrokerError
from oauthbroker.protocol.messages import ProviderRequest
from oauthbroker.protocol.network.transport import MOST_BYTES, Transport

Mac = Callable[..., bytes]
ASKED: Final = "challenge"  # of the query of /healthz, and the member of its answer
LONGEST: Final = 64
ANSWER_SECONDS: Final = 5.0  # a broker that starts answers late


def proof_of(mac: Mac, challenge: str, port: int) -> str:
    return mac("own broker", challenge[:LONGEST], str(port)).hex()


async def is_own_broker(mac: Mac, clock: Clock, host: str, port: int) -> bool:
    """Ask the program that listens at an address of this machine. Raises nothing."""
    challenge = random_text(clock, 256)
    place = f"[{host}]" if ":" in host else host.replace("localhost", "127.0.0.1")
    transport = Transport(plain_http_loopback=True)
    try:
        asked = ProviderRequest("GET", f"http://{place}:{port}/healthz?{ASKED}={challenge}")
        answer = await transport.send(asked, seconds=ANSWER_SECONDS, max_bytes=MOST_BYTES)
        said = json.loads(answer.body)
    except (BrokerError, ValueError, RecursionError):
        return False
    finally:
        await transport.close()
    proof = said.get(ASKED) if isinstance(said, dict) else None
    return isinstance(proof, str) and hmac.compare_digest(proof.encode(), proof_of(mac, challenge, port).encode())
