"""The end of an authorization that a call waits for, as both halves of the plug-in tell it."""

from __future__ import annotations

from typing import Final

from oauthbroker import Broker, BrokerError, Code

PATIENCE_SECONDS: Final = 25.0  # below the 30 s of the SDK's clients
STATELESS: Final = "2026-07-28"  # the first revision with input_required
INPUT: Final = "oauthbroker"  # the name of our input request
PENDING: Final = "pending"
CANCEL: Final = "cancel"  # a dialog that was closed, or that no user could see


async def ended(
    broker: Broker,
    session_id: str,
    said: str | None = None,
    *,
    seconds: float = PATIENCE_SECONDS,
    may_cancel: bool = True,
) -> str | None:
    """Wait for the end of an authorization. Return None for consent, PENDING, or a sentence for the model.

    `said` is the user's answer to the elicitation; `accept` means only that the user opens the link. The callers answer
    CANCEL themselves: the user has not decided, and the link lives.
    """
    if said == "decline":
        if may_cancel:
            await broker.cancel(session_id)
        return "The user declined to connect the account. Do not ask again unless the user wants to."
    outcome = await broker.wait(session_id, seconds)
    if outcome.status in {"completed", PENDING}:
        return None if outcome.status == "completed" else PENDING
    return str(BrokerError(outcome.code or Code.STATE_EXPIRED))
