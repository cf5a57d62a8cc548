"""Play every outcome of an authorization."""

from __future__ import annotations

from tests.kit.running_broker import BOB, Harness, turn


async def every_outcome(harness: Harness) -> None:
    """Every way an authorization can go: agreed, denied, by a stranger, forged, lost, revoked, listed."""
    await harness.connected("mail")
    await harness.connect(await harness.ask_link("files"), deny=True)
    await harness.connect(await harness.ask_link("mail", of=turn(user=BOB)), "mallory")
    harness.idp.script.token.alter_id_token(claims={"aud": "somebody-else"})
    await harness.connect(await harness.ask_link("files"))
    harness.idp.script.token.answer(status=500)
    await harness.connect(await harness.ask_link("files"))
    harness.idp.script.userinfo.answer(status=401)
    await harness.connect(await harness.ask_link("team"))
    await harness.connected("team")
    await harness.broker.pending(turn())
    await harness.broker.revoke("mail", subject="idp:user:U234567")
