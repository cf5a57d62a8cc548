from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import unquote_plus

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from oauthbroker.core.errors import Code
from oauthbroker.core.secret import Secret
from oauthbroker.model.apps import App, AssertionAudience
from oauthbroker.model.client_key import signing_key
from oauthbroker.protocol.client_auth import ASSERTION_TYPE, authenticated_post
from oauthbroker.protocol.device_messages import device_response, device_token_response
from oauthbroker.protocol.messages import ProviderRequest, reveal
from oauthbroker.protocol.par import par_response
from oauthbroker.protocol.refresh_messages import refresh_response
from oauthbroker.protocol.revocation_messages import revoke_response
from oauthbroker.protocol.token_endpoint import token_response
from oauthbroker.testing.clock import TestClock
from tests.unit.protocol.kit import APP, CANARY, CLIENT_ID, ISSUER, answer, code_of, refusal, with_client

EC = ECKey.generate_key("P-256")
RSA = RSAKey.generate_key(2048)
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def posted(app=APP, url: str = f"{ISSUER}/token", clock: TestClock | None = None) -> ProviderRequest:
    return authenticated_post(app, app.endpoints, url, {"grant_type": "x"}, clock or TestClock(NOW))


def form_of(request: ProviderRequest) -> dict[str, str]:
    assert request.form is not None
    return {name: reveal(value) for name, value in request.form.items() if not isinstance(value, tuple)}


def jwk(key: Any, **extra: Any) -> Secret:
    return Secret(json.dumps({**key.as_dict(private=True), **extra}))


def pem(key: Any, layout: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8) -> Secret:
    return Secret(
        key.private_key.private_bytes(serialization.Encoding.PEM, layout, serialization.NoEncryption()).decode()
    )


@given(st.text(min_size=1), st.text(min_size=1))
def test_basic_form_encodes_id_and_secret_so_that_any_pair_survives(client_id, secret):
    request = posted(with_client(client_id=client_id, client_secret=Secret(secret)))
    scheme, _, value = reveal(request.headers["Authorization"]).partition(" ")
    user, _, password = base64.b64decode(value).decode("ascii").partition(":")
    assert ("Basic", client_id, secret) == (scheme, unquote_plus(user), unquote_plus(password))
    assert {"grant_type": "x"} == form_of(request)


def test_basic_is_encoded_as_the_rfc_says():
    request = posted(with_client(client_id="a:b", client_secret=Secret("c d+é")))
    assert b"a%3Ab:c+d%2B%C3%A9" == base64.b64decode(reveal(request.headers["Authorization"]).removeprefix("Basic "))


def test_post_puts_both_into_the_form_and_nothing_into_the_header():
    request = posted(with_client(auth_method="client_secret_post"))
    assert {"grant_type": "x", "client_id": CLIENT_ID, "client_secret": f"{CANARY}-client-secret"} == form_of(request)
    assert {} == request.headers


def test_none_names_the_client_only():
    request = posted(with_client(auth_method="none", client_secret=None))
    assert ({"grant_type": "x", "client_id": CLIENT_ID}, {}) == (form_of(request), request.headers)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "private_key_jwt"])
@pytest.mark.parametrize("secret", [None, Secret("")])
def test_a_method_without_its_secret_is_a_configuration_fault(method, secret):
    app = with_client(auth_method=method, client_secret=secret)
    assert Code.APP_MISCONFIGURED == code_of(lambda: posted(app))


def test_an_endpoint_that_is_not_there_is_a_configuration_fault():
    assert Code.APP_MISCONFIGURED == code_of(lambda: posted(url=""))


@pytest.mark.parametrize(
    "material, key, algorithm",
    [
        (jwk(EC), EC, "ES256"),
        (pem(EC), EC, "ES256"),
        (pem(EC, serialization.PrivateFormat.TraditionalOpenSSL), EC, "ES256"),
        (jwk(RSA), RSA, "RS256"),
        (jwk(RSA, alg="PS256"), RSA, "PS256"),
        (pem(RSA), RSA, "RS256"),
        (pem(RSA, serialization.PrivateFormat.TraditionalOpenSSL), RSA, "RS256"),
    ],
)
def test_an_assertion_is_signed_by_our_key_for_the_issuer_alone(material, key, algorithm):
    """RFC 7523 section 3, and the BCP update: `aud` is the issuer, one value, even if the endpoint is elsewhere."""
    app = with_client(auth_method="private_key_jwt", client_secret=material)
    form = form_of(posted(app, url="https://lying.example/token"))
    assert (CLIENT_ID, ASSERTION_TYPE) == (form["client_id"], form["client_assertion_type"])
    token = jwt.decode(form["client_assertion"], key, algorithms=[algorithm])
    claims = token.claims
    assert (CLIENT_ID, CLIENT_ID, ISSUER) == (claims["iss"], claims["sub"], claims["aud"])
    assert (NOW.timestamp(), 60) == (claims["iat"], claims["exp"] - claims["iat"])
    assert "client_secret" not in form


def test_two_assertions_never_share_their_id_and_the_key_id_is_named():
    app = with_client(auth_method="private_key_jwt", client_secret=jwk(EC, kid="key-7"))
    tokens = [jwt.decode(form_of(posted(app))["client_assertion"], EC, algorithms=["ES256"]) for _ in range(2)]
    assert 2 == len({token.claims["jti"] for token in tokens})
    assert ["key-7", "key-7"] == [token.header["kid"] for token in tokens]


@pytest.mark.parametrize("said", ["JWT", "client-authentication+jwt"])
def test_an_assertion_has_the_type_that_the_app_configures(said):
    """RFC 7523 left it open; its successor's word is not understood everywhere yet."""
    app = with_client(auth_method="private_key_jwt", client_secret=jwk(EC), assertion_type=said)
    token = jwt.decode(form_of(posted(app))["client_assertion"], EC, algorithms=["ES256"])
    assert said == token.header["typ"]
    assert "JWT" == APP.client.assertion_type


@pytest.mark.parametrize(
    "audience, expected",
    [("issuer", ISSUER), ("tokenEndpoint", f"{ISSUER}/token"), ("endpoint", f"{ISSUER}/revoke")],
)
def test_an_assertion_has_the_one_audience_that_the_app_says(audience: AssertionAudience, expected: str):
    app = with_client(auth_method="private_key_jwt", client_secret=jwk(EC), assertion_audience=audience)
    form = form_of(posted(app, url=f"{ISSUER}/revoke"))
    assert expected == jwt.decode(form["client_assertion"], EC, algorithms=["ES256"]).claims["aud"]


@pytest.mark.parametrize("audience, slot", [("issuer", "issuer"), ("tokenEndpoint", "token_url")])
def test_an_assertion_needs_its_audience_and_nothing_else(audience: AssertionAudience, slot: str):
    app = with_client(auth_method="private_key_jwt", client_secret=jwk(EC), assertion_audience=audience)
    without = dataclasses.replace(app, endpoints=dataclasses.replace(app.endpoints, **{slot: ""}))
    assert Code.APP_MISCONFIGURED == code_of(lambda: posted(without))
    other = {"issuer": "token_url", "token_url": "issuer"}[slot]
    without = dataclasses.replace(app, endpoints=dataclasses.replace(app.endpoints, **{other: ""}))
    assert "client_assertion" in form_of(posted(without))


REFUSED = answer({"error": "invalid_client", "error_description": CANARY}, 401)
VALIDATORS: dict[str, Callable[[App], object]] = {
    "code": lambda app: token_response(app, REFUSED),
    "refresh": lambda app: refresh_response(app, REFUSED),
    "push": lambda app: par_response(app, REFUSED),
    "device": lambda app: device_response(app, REFUSED, lambda _: None),
    "poll": lambda app: device_token_response(app, REFUSED),
    "revoke": lambda app: revoke_response(app, REFUSED),
}


@pytest.mark.parametrize("validate", VALIDATORS.values(), ids=VALIDATORS)
def test_every_endpoints_refusal_of_the_client_speaks_of_the_assertions_audience(
    validate: Callable[[App], object],
):
    """Where one was sent; a client with a secret is only told that it is not known."""
    signing = with_client(auth_method="private_key_jwt", client_secret=jwk(EC), assertion_audience="tokenEndpoint")
    refused = refusal(lambda: validate(signing))
    assert Code.APP_MISCONFIGURED is refused.code
    advice = (
        "invalid_client; the client's assertion names as its audience the token endpoint; see client.assertionAudience"
    )
    assert refused.note.endswith(advice)
    assert refusal(lambda: validate(APP)).note.endswith("invalid_client")


@pytest.mark.parametrize("validate", VALIDATORS.values(), ids=VALIDATORS)
@pytest.mark.parametrize("odd", [{"client_secret": Secret("a+b/c=")}, {"client_id": "a:b"}], ids=["secret", "id"])
def test_every_endpoints_refusal_of_a_client_that_basic_encodes_says_which_setting_sends_it_raw(
    validate: Callable[[App], object], odd: dict[str, Any]
) -> None:
    plain = {"client_id": "my-id", "client_secret": Secret("a-b_c.d~e"), "auth_method": "client_secret_basic"}
    note = refusal(lambda: validate(with_client(**{**plain, **odd}))).note
    assert "client.authMethod: client_secret_post" in note
    assert "invalid_client" == note.partition(";")[0].rpartition(": ")[2]
    others = [with_client(**plain), with_client(**{**plain, **odd, "auth_method": "client_secret_post"})]
    assert all(refusal(partial(validate, other)).note.endswith("invalid_client") for other in others)


@pytest.mark.parametrize(
    "material",
    [
        Secret(f"{CANARY}-not-a-key"),
        Secret(f'{{"kty": "{CANARY}"}}'),
        Secret("{"),
        Secret(f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n"),
        Secret(json.dumps(EC.as_dict(private=False))),
        jwk(OctKey.generate_key(256)),
        jwk(OKPKey.generate_key("Ed25519")),
        jwk(RSA, alg="HS256"),
        jwk(RSA, alg="none"),
    ],
)
def test_an_unusable_key_is_a_configuration_fault_that_quotes_nothing(material):
    assert Code.APP_MISCONFIGURED == code_of(lambda: signing_key(material))


def test_a_signing_key_prints_its_algorithm_only():
    assert "SigningKey(ES256)" == repr(signing_key(jwk(EC)))
