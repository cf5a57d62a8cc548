"""Signatures of requests, against computations of the test's own, other libraries and the documents' examples."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

import pytest
from authlib.oauth1 import ClientAuth

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.protocol.network.api_request import ApiRequest
from oauthbroker.protocol.request_signatures import signed

KEYS = {"accessKeyId": "AKIDEXAMPLE", "secretAccessKey": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}


def request(path: str = "/", method: str = "GET", **more: Any) -> ApiRequest:
    headers = [(name.encode(), value.encode()) for name, value in more.pop("headers", ())]
    scheme, port = more.pop("scheme", "https"), more.pop("port", 443)
    return ApiRequest(
        method=method, scheme=scheme, host="api.example.com", port=port, path=path, headers=headers, **more
    )


def expected_aws(asked: ApiRequest, sent: dict[str, str], service: str, region: str) -> str:
    """Compute the signature as AWS's document has it: of the request as it goes out."""
    found = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=([^/]+)/(.+), SignedHeaders=(\S+), Signature=([0-9a-f]{64})",
        sent["authorization"],
    )
    assert found is not None
    key_id, scope, names, signature = found.groups()
    day = sent["x-amz-date"][:8]
    assert (KEYS["accessKeyId"], f"{day}/{region}/{service}/aws4_request") == (key_id, scope)
    path, _, query = asked.path.partition("?")
    canonical_path = path if service == "s3" else quote(path, safe="/~")
    pairs = sorted((quote(name, safe="~"), quote(value, safe="~")) for name, value in parse_qsl(query, True))
    assert isinstance(asked.body, bytes)
    payload = "UNSIGNED-PAYLOAD" if service == "s3" else hashlib.sha256(asked.body).hexdigest()
    canonical = [asked.method, canonical_path, "&".join(f"{name}={value}" for name, value in pairs)]
    canonical += [f"{name}:{' '.join(sent[name].split())}" for name in names.split(";")]
    text = "\n".join([*canonical, "", names, payload])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", sent["x-amz-date"], scope, hashlib.sha256(text.encode()).hexdigest()])
    key = b"AWS4" + KEYS["secretAccessKey"].encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), "sha256").digest()
    assert hmac.new(key, to_sign.encode(), "sha256").hexdigest() == signature
    return names


AWS: dict[str, tuple[str, ApiRequest]] = {
    "a plain path": ("execute-api", request("/v1/items")),
    "an encoded path": ("execute-api", request("/a%20b/%E2%82%AC")),
    "a query out of order": ("ec2", request("/?Version=2016-11-15&Action=DescribeRegions")),
    "a query with separators": ("ec2", request("/?prefix=a/b&time=10:00&e=a%20b&empty&x=")),
    "a query with a plus": ("ec2", request("/?q=a+b")),
    "a body": ("dynamodb", request("/", "POST", body=b'{"a": 1}', headers=[("X-Amz-Target", "DynamoDB.ListTables")])),
    "a media type": (
        "sqs",
        request("/", "POST", body=b"Action=x", headers=[("Content-Type", "a/b"), ("Accept", "*/*")]),
    ),
    "a header twice": ("sqs", request("/", headers=[("X-Amz-Meta-A", "1"), ("x-amz-meta-a", "2")])),
    "a port": ("execute-api", request("/x", port=8443)),
    "an object": ("s3", request("/a%20b/c%2Bd.txt?acl", "PUT", body=b"text", headers=[("Content-Type", "text/plain")])),
    "objects below a prefix": ("s3", request("/?list-type=2&prefix=a/b%20c&delimiter=%2F")),
}


@pytest.mark.parametrize("token", [None, "the-session-token"])
@pytest.mark.parametrize("name", AWS)
def test_aws_would_compute_the_same_signature(name: str, token: str | None) -> None:
    service, asked = AWS[name]
    texts = {**KEYS, "service": service, "region": "eu-west-1", **({"sessionToken": token} if token else {})}
    done = signed("awsSigV4", texts, asked)
    sent = {"host": done.head[0][1].decode()}
    for raw, value in done.headers:
        at = raw.decode().lower()
        sent[at] = f"{sent[at]},{value.decode()}" if at in sent else value.decode()
    names = expected_aws(asked, sent, service, "eu-west-1").split(";")
    assert token == sent.get("x-amz-security-token")
    assert (token is not None) == ("x-amz-security-token" in names)
    assert {name for name in sent if name.startswith("x-amz-")} <= set(names)


def test_an_object_goes_in_pieces_and_another_body_does_not() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a"

    texts = {**KEYS, "service": "s3", "region": "eu-west-1"}
    done = signed("awsSigV4", texts, request("/x", "PUT", body=pieces()))
    assert (b"X-Amz-Content-SHA256", b"UNSIGNED-PAYLOAD") in done.headers
    with pytest.raises(BrokerError) as caught:
        signed("awsSigV4", {**texts, "service": "sqs"}, request("/x", "PUT", body=pieces()))
    assert Code.REQUEST_INVALID is caught.value.code


TWITTER = {  # the example of "Creating a signature" of Twitter's documentation
    "consumerKey": "xvz1evFS4wEEPTGEFPHBog",
    "consumerSecret": "kAcSOqF21Fu85e7zjz7ZN2U4ZRhfV3WpwPAoE3Z7kBw",
    "token": "370773112-GmHxMAgYyLbNEtIKZeRNFsMKPR9EyMZeS9weJAEb",
    "tokenSecret": "LswwdoUaIvS8ltyTt5jkRh4J50vUPVVHtR2YPi5kE",
}
RFC = {  # RFC 5849 section 1.2
    "consumerKey": "dpf43f3p2l4k3l03",
    "consumerSecret": "kd94hf93k423kf44",
    "token": "nnch734d00sl2jdk",
    "tokenSecret": "pfkkdhi9sl3r4s00",
}


def authorization(texts: dict[str, str], asked: ApiRequest, nonce: str, at: str, patch: pytest.MonkeyPatch) -> str:
    from authlib.oauth1.rfc5849 import client_auth

    patch.setattr(client_auth, "generate_nonce", lambda: nonce)
    patch.setattr(client_auth, "generate_timestamp", lambda: at)
    return dict(signed("oauth1", texts, asked).headers)[b"Authorization"].decode()


def test_the_example_of_a_document_has_its_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"status=Hello%20Ladies%20%2b%20Gentlemen%2c%20a%20signed%20OAuth%20request%21"
    asked = ApiRequest(
        method="POST", scheme="https", host="api.twitter.com", port=443,
        path="/1.1/statuses/update.json?include_entities=true", body=body,
        headers=[(b"Content-Type", b"application/x-www-form-urlencoded")],
    )  # fmt: skip
    nonce = "kYjzVBB8Y0ZFabxSWbWovY3uYSQ2pTgmZeNu2VS4cg"
    said = authorization(TWITTER, asked, nonce, "1318622958", monkeypatch)
    assert 'oauth_signature="hCtSmYh%2BiHYCEqBWrE7C7hYmtUk%3D"' in said


OAUTH1: dict[str, ApiRequest] = {
    "a query": request("/photos?file=vacation.jpg&size=original"),
    "a query with blanks and signs": request("/x?a=b%20c&a=B&d=%E2%82%AC&e=&f=%2B"),
    "a form": request("/x", "POST", body=b"z=1&a=2+3", headers=[("Content-Type", "application/x-www-form-urlencoded")]),
    "json": request("/x?b=1", "POST", body=b'{"a": 1}', headers=[("Content-Type", "application/json")]),
    "a port": request("/x", port=8443),
}


@pytest.mark.parametrize("method", ["HMAC-SHA1", "HMAC-SHA256"])
@pytest.mark.parametrize("name", OAUTH1)
def test_another_library_computes_the_same_signature(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = OAUTH1[name]
    said = authorization(
        {**RFC, "signatureMethod": method, "realm": "123_SB1"}, asked, "n0nce", "1700000000", monkeypatch
    )
    assert said.startswith('OAuth realm="123_SB1", ')
    other = ClientAuth(*RFC.values(), signature_method="HMAC-SHA1")
    if method == "HMAC-SHA256":
        ClientAuth.register_signature_method("HMAC-SHA256", _sha256)
        other.signature_method = method
    port = "" if asked.port == 443 else f":{asked.port}"
    headers = {name.decode(): value.decode() for name, value in asked.headers} or {"Content-Type": "text/plain"}
    assert isinstance(asked.body, bytes)
    _, got, _ = other.prepare(asked.method, f"https://{asked.host}{port}{asked.path}", headers, asked.body.decode())
    assert _fields(got["Authorization"]) == {k: v for k, v in _fields(said).items() if k != "realm"}


def _sha256(client: Any, asked: Any) -> str:
    import base64

    from authlib.oauth1.rfc5849.signature import generate_signature_base_string

    key = f"{quote(client.client_secret, safe='~')}&{quote(client.token_secret, safe='~')}"
    base = generate_signature_base_string(asked)
    return base64.b64encode(hmac.new(key.encode(), base.encode(), "sha256").digest()).decode()


def _fields(header: str) -> dict[str, str]:
    return {name: unquote(value) for name, value in re.findall(r'(\w+)="([^"]*)"', header)}


@pytest.mark.parametrize("path", ["/x?a=[1]&b={c}", "/x?%zz", "/x?=&&", "/x?" + "a" * 8000, "/x?a=%ff"])
def test_a_query_of_any_form_is_signed(path: str) -> None:
    for kind, texts in (("oauth1", RFC), ("awsSigV4", {**KEYS, "service": "sqs", "region": "eu-west-1"})):
        done = signed(kind, texts, request(path))  # type: ignore[arg-type]
        assert b"Authorization" in dict(done.headers)
        assert path == done.path, "it goes as it came"
