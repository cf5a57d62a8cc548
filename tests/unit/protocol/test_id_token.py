"""The conformance suite's list of bad ID tokens (case 32), signed by real keys."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jws
from joserfc.jwk import ECKey, Key, OctKey, RSAKey

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App
from oauthbroker.model.provider_habits import Habits
from oauthbroker.protocol.id_token import MAX_LENGTH, read_id_token, unverified_jwt, verify_id_token
from tests.unit.protocol.id_token_kit import EC, ED, KEYS, NONCE, NOW, RSA, T, b64, named, public
from tests.unit.protocol.kit import APP, CANARY, CLIENT_ID, ISSUER, refusal, with_habits

ACCESS = Secret(f"{CANARY}-access")


RSA_2 = named(RSAKey.generate_key(2048), "r2")
STRANGER = named(RSAKey.generate_key(2048), "r1")


CLAIMS: dict[str, Any] = {
    "iss": ISSUER, "aud": CLIENT_ID, "sub": f"{CANARY}-sub", "exp": T + 300, "iat": T, "nonce": "nonce-1",
}  # fmt: skip


def signed(
    key: Any = RSA, alg: str = "RS256", header: dict[str, Any] | None = None, drop: str = "", **claims: Any
) -> str:
    payload = {name: value for name, value in {**CLAIMS, **claims}.items() if name != drop}
    head = {"alg": alg, "kid": key.kid, **(header or {})}
    return raw(key, {name: value for name, value in head.items() if value is not None}, json.dumps(payload).encode())


def raw(key: Any, header: dict[str, Any], payload: bytes) -> str:
    """Signs exactly these bytes under this header, however odd."""
    first = b64(json.dumps(header).encode()) + "." + b64(payload)
    model = jws.JWSRegistry.algorithms[header["alg"]]
    return first + "." + b64(model.sign(first.encode(), key))


def verify(token: str, app: App = APP, keys: tuple[Key, ...] = KEYS, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"issuer": ISSUER, "nonce": NONCE, "access_token": ACCESS, "now": NOW} | changes
    return verify_id_token(app, read_id_token(Secret(token)), keys=keys, **options)


BY_CLOCK = "by this host's clock"


def refused(token: str, app: App = APP, keys: tuple[Key, ...] = KEYS, **changes: Any) -> str:
    """The check that said no."""
    error = refusal(lambda: verify(token, app, keys, **changes))
    assert Code.ID_TOKEN_INVALID == error.code
    return error.note


# --- accepted


@pytest.mark.parametrize("key, alg", [(RSA, "RS256"), (RSA, "PS256"), (EC, "ES256"), (ED, "EdDSA")])
def test_every_listed_algorithm_is_accepted(key, alg):
    assert CLAIMS == verify(signed(key, alg))


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": [CLIENT_ID]},
        {"azp": CLIENT_ID},
        {"exp": T - 59},
        {"exp": T + 0.5},
        {"iat": T + 599},
        {"nbf": T},
        {"sub": "ü|x y"},
        {"unknown": {"a": 1}},
    ],
)
def test_what_the_specification_allows_is_accepted(claims):
    assert CLAIMS | claims == verify(signed(**claims))


@pytest.mark.parametrize("header", [{"typ": "JWT"}, {"x5t": "abc"}, {"cty": "x", "zzz": 1}, {"kid": None}])
def test_harmless_headers_are_accepted(header):
    assert verify(signed(header=header), keys=(public(RSA),))


def test_a_nonce_is_not_asked_for_when_none_was_sent():
    assert verify(signed(drop="nonce"), nonce=None)
    assert verify(signed(), nonce=None)


def half_hash(name: str) -> str:
    digest = hashlib.new(name, ACCESS.reveal().encode()).digest()
    return b64(digest[: len(digest) // 2])


@pytest.mark.parametrize("key, alg, name", [(RSA, "RS256", "sha256"), (EC, "ES256", "sha256"), (ED, "EdDSA", "sha512")])
def test_a_right_at_hash_is_accepted_and_a_wrong_one_refused(key, alg, name):
    assert verify(signed(key, alg, at_hash=half_hash(name)))
    for wrong in (half_hash("sha1"), "", None, 5, half_hash(name)[:-1], [half_hash(name)]):
        assert "at_hash" == refused(signed(key, alg, at_hash=wrong))


# --- refused


@pytest.mark.case("32")
@pytest.mark.parametrize(
    "claims, check",
    [
        ({"iss": "https://evil.example"}, "iss"),
        ({"iss": f"{ISSUER}/"}, "iss"),
        ({"iss": ISSUER.upper()}, "iss"),
        ({"iss": [ISSUER]}, "iss"),
        ({"drop": "iss"}, "iss"),
        ({"aud": "another"}, "aud"),
        ({"aud": []}, "aud"),
        ({"aud": ["another"]}, "aud"),
        ({"aud": [CLIENT_ID, "another"]}, "aud"),
        ({"aud": [CLIENT_ID, CLIENT_ID.upper()]}, "aud"),
        ({"aud": {CLIENT_ID: 1}}, "aud"),
        ({"aud": CLIENT_ID + " "}, "aud"),
        ({"drop": "aud"}, "aud"),
        ({"azp": "another"}, "azp"),
        ({"azp": None}, "azp"),
        ({"azp": [CLIENT_ID]}, "azp"),
        ({"exp": T - 61}, f"exp is 61 s ago, {BY_CLOCK}"),
        ({"exp": 0}, f"exp is {T} s ago, {BY_CLOCK}"),
        ({"exp": str(T + 300)}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": 1e300}, "exp"),
        ({"drop": "exp"}, "exp"),
        ({"nbf": T + 601}, f"nbf is 601 s ahead, {BY_CLOCK}"),
        ({"nbf": "x"}, "nbf"),
        ({"iat": T + 601}, f"iat is 601 s ahead, {BY_CLOCK}"),
        ({"iat": "now"}, "iat"),
        ({"drop": "iat"}, "iat"),
        ({"sub": ""}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "a\nb"}, "sub"),
        ({"sub": "x" * 256}, "sub"),
        ({"drop": "sub"}, "sub"),
        ({"nonce": "nonce-2"}, "nonce"),
        ({"nonce": ""}, "nonce"),
        ({"nonce": ["nonce-1"]}, "nonce"),
        ({"drop": "nonce"}, "nonce"),
    ],
)
def test_a_claim_that_is_wrong_or_missing_is_refused(claims, check):
    assert check == refused(signed(**claims))


@pytest.mark.case("32")
def test_a_token_issued_long_before_we_asked_is_an_old_one():
    assert verify(signed(iat=T - 500), sent_at=NOW)
    assert f"iat is 601 s before the request, {BY_CLOCK}" == refused(signed(iat=T - 601), sent_at=NOW)


@pytest.mark.case("32")
@pytest.mark.parametrize("alg", ["none", "None", "NONE", ""])
@pytest.mark.parametrize("signature", ["", "AAAA"])
def test_an_unsigned_token_is_refused(alg, signature):
    header = b64(json.dumps({"alg": alg, "kid": "r1"}).encode())
    payload = b64(json.dumps(CLAIMS).encode())
    listed = with_habits(id_token_algorithms=("none", alg, "RS256"))
    assert ("alg", "alg") == (
        refused(f"{header}.{payload}.{signature}"),
        refused(f"{header}.{payload}.{signature}", listed),
    )


@pytest.mark.case("32")
@pytest.mark.parametrize("alg", ["HS256", "HS384", "HS512"])
def test_a_symmetric_signature_is_refused_even_if_it_is_listed(alg):
    """By the client secret, or by the public key taken for one."""
    listed = with_habits(id_token_algorithms=(alg, "RS256"))
    for secret in (b"x" * 64, RSA.as_pem(private=False)):
        first = b64(json.dumps({"alg": alg, "kid": "r1"}).encode()) + "." + b64(json.dumps(CLAIMS).encode())
        token = first + "." + b64(hmac.digest(secret, first.encode(), f"sha{alg[2:]}"))
        for keys in (KEYS, (named(OctKey.import_key(b"x" * 64), "r1"),)):
            assert ("alg", "alg") == (refused(token, APP, keys), refused(token, listed, keys))


@pytest.mark.case("32")
def test_an_algorithm_that_the_app_did_not_list_is_refused():
    only_ec = with_habits(id_token_algorithms=("ES256",))
    assert "alg" == refused(signed(RSA, "RS256"), only_ec)
    assert verify(signed(EC, "ES256"), only_ec)
    assert "alg" == refused(signed(), with_habits(id_token_algorithms=()))


@pytest.mark.case("32")
@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_token_changed_anywhere_is_refused(part):
    parts = signed().split(".")
    other = signed(sub="somebody-else").split(".")
    parts[part] = other[part] if part else b64(json.dumps({"alg": "RS256", "kid": "r1", "x": 1}).encode())
    assert "signature" == refused(".".join(parts))


@pytest.mark.case("32")
def test_a_stranger_who_uses_our_providers_key_id_is_refused():
    assert "signature" == refused(signed(STRANGER))


@pytest.mark.case("32")
def test_ec_and_rsa_signatures_of_the_wrong_key_are_refused():
    assert "signature" == refused(signed(named(ECKey.generate_key("P-256"), "e1"), "ES256"))
    assert "key" == refused(signed(RSA, "RS256", header={"kid": "e1"}))


@pytest.mark.case("32")
@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c"])
def test_a_key_that_the_token_brings_itself_is_refused(name):
    value = {
        "jwk": STRANGER.as_dict(private=False),
        "jku": "https://evil.example/jwks",
        "x5u": "https://evil.example/c",
        "x5c": ["AA"],
    }[name]
    assert "header" == refused(signed(STRANGER, header={name: value}))
    assert "header" == refused(signed(RSA, header={name: value}))


@pytest.mark.case("32")
@pytest.mark.parametrize(
    "header", [{"crit": ["exp"]}, {"crit": ["unknown"], "unknown": 1}, {"crit": []}, {"b64": True}]
)
def test_a_critical_extension_is_refused_since_we_know_none(header):
    assert "header" == refused(signed(header=header))


@pytest.mark.case("32")
def test_without_a_key_id_only_a_single_fitting_key_will_do():
    token = signed(header={"kid": None})
    assert verify(token, keys=(public(RSA), public(EC)))
    assert "key" == refused(token, keys=(public(RSA), public(RSA_2)))
    assert "key" == refused(token, keys=())
    assert "key" == refused(signed(RSA_2))


@pytest.mark.case("32")
@pytest.mark.parametrize("kid", [5, ["r1"], {"a": 1}])
def test_a_key_id_is_text(kid):
    assert "kid" == refused(signed(header={"kid": kid}))


def test_the_key_id_is_read_for_fetching():
    assert "r1" == read_id_token(Secret(signed())).kid
    assert read_id_token(Secret(signed(header={"kid": None}))).kid is None


@pytest.mark.case("32")
@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "a.b", "a.b.c.d", "a.b.c.d.e", "é.b.c", "e30.e30.", "bnVsbA.e30.AA", "W10.e30.AA", "====.e30.AA", "A" * 70_000 + ".b.c", "A.b.c"],
)  # fmt: skip
def test_a_text_that_is_no_token_is_refused(token):
    refused(token)


@pytest.mark.case("32")
@pytest.mark.parametrize(
    "payload",
    [
        b"", b"[]", b"null", b"{", b"\xff", b'{"sub": NaN}', b'{"sub": "a", "sub": "b"}',
        json.dumps(CLAIMS).encode()[:-1] + b', "sub": "other"}', json.dumps(CLAIMS).encode("utf-16"),
    ],
)  # fmt: skip
def test_claims_are_strict_json(payload):
    refused(raw(RSA, {"alg": "RS256", "kid": "r1"}, payload))


def test_a_header_with_a_name_twice_is_refused():
    first = b64(b'{"alg":"RS256","kid":"r1","alg":"none"}') + "." + b64(json.dumps(CLAIMS).encode())
    refused(first + "." + b64(jws.JWSRegistry.algorithms["RS256"].sign(first.encode(), RSA)))


# --- the issuer of many tenants

TENANTS = dataclasses.replace(APP, habits=Habits(issuer_template="https://login.example/{tid}/v2.0"))


@pytest.mark.case("32")
@pytest.mark.parametrize(
    "iss, tid, accepted",
    [
        ("https://login.example/t-1/v2.0", "t-1", True),
        ("https://login.example/t-2/v2.0", "t-1", False),
        ("https://login.example/t-1/v2.0/", "t-1", False),
        ("https://login.example/{tid}/v2.0", "{tid}", False),
        ("https://login.example/../evil/v2.0", "../evil", False),
        ("https://login.example//v2.0", "", False),
        ("https://login.example/1/v2.0", 1, False),
        ("https://login.example/None/v2.0", None, False),
        (ISSUER, "t-1", False),
    ],
)
def test_an_issuer_template_is_filled_from_the_signed_claims(iss, tid, accepted):
    token = signed(iss=iss, tid=tid)
    if accepted:
        assert "t-1" == verify(token, TENANTS)["tid"]
    else:
        assert "iss" == refused(token, TENANTS)


def test_without_any_issuer_nothing_is_accepted():
    assert "iss" == refused(signed(iss=""), issuer="")


@pytest.mark.case("32")
@given(st.text(max_size=200) | st.builds(".".join, st.lists(st.text("abAB01-_", max_size=12), min_size=3, max_size=3)))
def test_every_wrong_id_token_is_refused_with_a_broker_error(token):
    with pytest.raises(BrokerError) as caught:
        verify(token)
    assert Code.ID_TOKEN_INVALID == caught.value.code


@pytest.mark.parametrize("text", ["e30.e30", "e30", "e30.e30.e30.e30", "", "e30.e30.", "e30.e30." + "x" * MAX_LENGTH])
def test_a_jwt_has_three_parts_and_a_bounded_length(text: str) -> None:
    if text == "e30.e30.":
        assert ({}, {}) == unverified_jwt(Secret(text))
    else:
        assert Code.ID_TOKEN_INVALID is refusal(lambda: unverified_jwt(Secret(text))).code
