"""A provider behind TLS, and the certificates that every client must refuse."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path
from typing import get_args

import httpx2
import pytest

from oauthbroker.testing import Authority, Client, IdentityProvider
from oauthbroker.testing.authority import Fault
from tests.unit.testing.conftest import REDIRECT, RelyingParty, answered


def trusting(file: Path) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(trust_env=False, verify=ssl.create_default_context(cafile=str(file)))


async def test_a_whole_story_by_https(tmp_path: Path):
    authority = Authority(tmp_path)
    client = Client("bot", redirect_uris=(REDIRECT,))
    async with IdentityProvider(clients=[client], tls=authority.issue()) as idp, trusting(authority.file) as http:
        party = RelyingParty(idp, http)
        assert idp.issuer.startswith("https://127.0.0.1:")
        found = answered(await idp.agree(party.authorization_url(), "bob"))
        assert 200 == (await party.exchange(found["code"])).status_code
        assert idp.issuer == found["iss"]


@pytest.mark.parametrize("fault", [fault for fault in get_args(Fault) if fault])
async def test_every_fault_is_refused_by_those_who_trust_the_authority(tmp_path: Path, fault: Fault):
    authority = Authority(tmp_path)
    async with IdentityProvider(tls=authority.issue(fault)) as idp, trusting(authority.file) as http:
        with pytest.raises(httpx2.ConnectError):
            await http.get(idp.url("/jwks"))
        assert 0 == idp.count("jwks")


async def test_those_who_do_not_trust_it_refuse_a_good_one(tmp_path: Path):
    async with IdentityProvider(tls=Authority(tmp_path).issue()) as idp:
        async with httpx2.AsyncClient(trust_env=False) as http:
            with pytest.raises(httpx2.ConnectError):
                await http.get(idp.url("/jwks"))
        other = tmp_path / "other"
        other.mkdir()
        async with trusting(Authority(other).file) as http:
            with pytest.raises(httpx2.ConnectError):
                await http.get(idp.url("/jwks"))
        assert 0 == idp.count("jwks")


def test_private_keys_are_for_their_owner_only(tmp_path: Path):
    authority = Authority(tmp_path)
    authority.issue()
    (server,) = tmp_path.glob("server-*.pem")
    assert 0o600 == stat.S_IMODE(server.stat().st_mode)
    assert b"PRIVATE" not in authority.file.read_bytes()
