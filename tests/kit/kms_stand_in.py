"""A stand-in for AWS KMS and Secrets Manager, as far as their documentation says: `Encrypt`, `Decrypt` and `GetSecretValue`, with
the signature of each request checked for the host that was asked. It is not AWS: its answers were read, not recorded. moto plays more of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.kit.json_server import Request, json_server

REGION = "eu-central-1"
ARN = f"arn:aws:kms:{REGION}:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
SECRET = f"arn:aws:secretsmanager:{REGION}:123456789012:secret:meter-AbCdEf"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "stand-in",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass
class KmsStandIn:
    """One key, and secrets by their ARN. `refusals` are answers to the next requests, each a status and an error's word."""

    refusals: list[tuple[int, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)
    address: str = ""
    _key: AESGCM = field(default_factory=lambda: AESGCM(AESGCM.generate_key(256)))

    def answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        target, _, operation = request.headers["x-amz-target"].partition(".")
        self.asked.append(operation)
        if self.refusals:
            status, code = self.refusals.pop(0)
            return status, {"__type": f"com.amazonaws.kms#{code}"}
        if not _is_signed(request, {"TrentService": "kms"}.get(target, target)):
            return 400, {"__type": "InvalidSignatureException"}
        said = json.loads(request.body)
        if operation == "GetSecretValue":
            text = self.secrets.get(said["SecretId"])
            return (200, {"SecretString": text}) if text is not None else (400, {"__type": "ResourceNotFoundException"})
        context = json.dumps(said["EncryptionContext"]).encode()
        if operation == "Encrypt":
            sealed = self._key.encrypt(b"n" * 12, base64.b64decode(said["Plaintext"]), context)
            return 200, {"CiphertextBlob": base64.b64encode(sealed).decode()}
        try:
            plain = self._key.decrypt(b"n" * 12, base64.b64decode(said["CiphertextBlob"]), context)
        except InvalidTag:
            return 400, {"__type": "InvalidCiphertextException"}
        return 200, {"Plaintext": base64.b64encode(plain).decode()}


def _is_signed(request: Request, service: str) -> bool:
    """Sign the request again, for the same host and moment."""
    draft = AWSRequest("POST", f"https://{request.headers['host']}/", data=request.body)
    for name in ("content-type", "x-amz-target", "x-amz-date"):
        draft.headers[name] = request.headers[name]
    draft.context["timestamp"] = request.headers["x-amz-date"]
    known = Credentials(ENVIRONMENT["AWS_ACCESS_KEY_ID"], ENVIRONMENT["AWS_SECRET_ACCESS_KEY"])
    signer = SigV4Auth(known, service, REGION)
    signature = signer.signature(signer.string_to_sign(draft, signer.canonical_request(draft)), draft)
    return bool(request.headers["authorization"].endswith(f"Signature={signature}"))


@contextmanager
def kms_stand_in() -> Iterator[KmsStandIn]:
    kms = KmsStandIn()
    with json_server(kms.answer) as kms.address:
        yield kms
