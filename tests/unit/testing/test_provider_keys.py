"""The published keys: rotation in every order, entries that are no keys, and a set that is not there."""

from __future__ import annotations

import pytest
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from oauthbroker.testing.provider import FOREVER
from tests.unit.testing.conftest import RelyingParty


async def published(party: RelyingParty) -> list[str]:
    return [key["kid"] for key in (await party.get("/jwks")).json()["keys"]]


async def test_a_rotation_just_before_signing_leaves_the_reader_with_old_keys(party: RelyingParty):
    before = KeySet.import_key_set((await party.get("/jwks")).json())
    code = await party.code()
    party.idp.keys.rotate()
    id_token = (await party.exchange(code)).json()["id_token"]
    with pytest.raises((JoseError, ValueError)):
        jwt.decode(id_token, before, algorithms=["RS256"])
    after = KeySet.import_key_set((await party.get("/jwks")).json())
    assert "U234567" == jwt.decode(id_token, after, algorithms=["RS256"]).claims["sub"]
    assert 2 == party.idp.count("jwks")


async def test_old_keys_can_stay_for_a_while(party: RelyingParty):
    first = await published(party)
    party.idp.keys.rotate(keep=True)
    both = await published(party)
    party.idp.keys.rotate()
    assert first == both[2:]
    assert not {*first, *both} & {*await published(party)}


async def test_broken_entries_stand_first(party: RelyingParty):
    party.idp.keys.extra += [{"kty": "RSA"}, None, {"kty": "EC", "crv": "P-256", "x": "!", "y": "!", "kid": "rs-1"}]
    found = (await party.get("/jwks")).json()["keys"]
    assert (5, {"kty": "RSA"}, None) == (len(found), found[0], found[1])


async def test_the_set_can_be_missing_huge_or_asked_for_in_vain(party: RelyingParty):
    party.idp.script.jwks.answer(500)
    party.idp.script.jwks.answer(200, b'{"keys": [' + b" " * 5_000_000 + b"]}")
    assert 500 == (await party.get("/jwks")).status_code
    assert 5_000_000 < len((await party.get("/jwks")).content)
    party.idp.script.token.alter_id_token(header={"kid": "unheard-of"}, times=FOREVER)
    kids = set()
    for _ in range(3):
        header = (await party.connect())["id_token"].split(".")[0]
        kids.add(header)
    assert 1 == len(kids)
