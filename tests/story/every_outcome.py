"""Play every outcome of an authorization."""

from __future__ import annotations

from tests.kit.running_broker import BOB, House, turn


async def every_outcome(house: House) -> None:
    """Every way an authorization can go: agreed, denied, by a stranger, forged, lost, revoked, listed."""
    await house.connected("mail")
    await house.connect(await house.ask_link("files"), deny=True)
    await house.connect(await house.ask_link("mail", of=turn(user=BOB)), "mallory")
    house.idp.script.token.alter_id_token(claims={"aud": "somebody-else"})
    await house.connect(await house.ask_link("files"))
    house.idp.script.token.answer(status=500)
    await house.connect(await house.ask_link("files"))
    house.idp.script.userinfo.answer(status=401)
    await house.connect(await house.ask_link("team"))
    await house.connected("team")
    await house.broker.pending(turn())
    await house.broker.revoke("mail", subject="idp:user:U234567")
