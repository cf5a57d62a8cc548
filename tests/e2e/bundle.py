"""The bundle of one test: apps at oidc-provider, one for each way in which a client and a person are told apart."""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc.jwk import ECKey

from oauthbroker import TurnAuth
from oauthbroker.model.apps import Binding
from oauthbroker.model.turn import Turn

STAFF = "staff"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
# Everything that has to be encoded before it may stand in an Authorization header (RFC 6749 section 2.3.1).
AWKWARD = " +%:/&=?\"'~"


@dataclass(frozen=True)
class Registration:
    """One client at the provider and the OAuthApp that stands for it; `twin` names a second one with the same client."""

    name: str
    mode: Literal["user", "global"]
    auth_method: str
    title: str
    id_token_alg: str = "RS256"
    secret: str = field(default="", repr=False)
    public_key: dict[str, Any] = field(default_factory=dict)
    link: Literal["connect", "direct"] = "connect"
    twin: str = ""
    flow: Literal["authorizationCode", "deviceCode"] = "authorizationCode"
    binding: Binding = "providerIdentity"
    confirm_url: str = ""

    @property
    def ref(self) -> str:
        return f"OAuthApp/{self.name}"

    @property
    def names(self) -> tuple[str, ...]:
        """The OAuthApps that stand for it."""
        return (self.name, self.twin) if self.twin else (self.name,)

    @property
    def env(self) -> str:
        return f"E2E_{self.name.upper()}_SECRET"

    @property
    def subject(self) -> str:
        """Whose token it is, when alice of team T111 agrees."""
        return "example:user:alice" if self.mode == "user" else "example:team:T111"

    def client(self, base_url: str) -> dict[str, Any]:
        """The provider's side of it."""
        proof: dict[str, Any] = {}
        if self.auth_method == "private_key_jwt":
            proof = {"jwks": {"keys": [self.public_key]}, "token_endpoint_auth_signing_alg": "ES256"}
        elif self.secret:
            proof = {"client_secret": self.secret}
        arrival: dict[str, Any] = {
            "redirect_uris": [base_url + callback_path(name) for name in self.names],
            "response_types": ["code"],
            "grant_types": ["authorization_code", "refresh_token"],
        }
        if self.flow == "deviceCode":
            arrival = {"redirect_uris": [], "response_types": [], "grant_types": [DEVICE_GRANT, "refresh_token"]}
        return {
            "client_id": self.name,
            "client_name": self.title,
            "token_endpoint_auth_method": self.auth_method,
            "id_token_signed_response_alg": self.id_token_alg,
            **arrival,
            **proof,
        }

    def app(self, name: str, issuer: str) -> dict[str, Any]:
        """Our side of it, as the OAuthApp of this name."""
        page = {"confirmUrl": self.confirm_url} if self.binding == "runtimeConfirm" else {}
        secret = {"clientSecret": {"valueFrom": {"env": self.env}}} if self.secret else {}
        return {
            "provider": "oidc",
            "title": self.title,
            "flow": self.flow,
            "subjectMode": self.mode,
            "client": {"clientId": self.name, "authMethod": self.auth_method, **secret},
            "endpoints": {"issuer": issuer},
            "scopes": ["profile", "team"],
            "redirect": {"callbackPath": callback_path(name), "link": self.link},
            "owner": _OWNERS[self.mode] if self.binding == "providerIdentity" else {"binding": self.binding, **page},
        }


def callback_path(app: str) -> str:
    return f"/oauth/callback/{app}"


# User mode reads the account from the ID token (the preset's way); global mode asks userinfo for the team, and who of
# that team may connect it for the team.
_OWNERS: dict[str, Any] = {
    "user": {"identity": {"user": {"template": "example:user:{sub}"}}},
    "global": {
        "identity": {
            "global": {"from": "userInfo", "template": "example:team:{team}"},
            "user": {"from": "userInfo", "template": "example:user:{sub}"},
        },
        "authorizers": ["example:user:alice"],
    },
}


def registrations() -> dict[str, Registration]:
    """Fresh secrets every time, so that one found in any output is known to be ours."""
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    public = ECKey.import_key(key.public_key()).as_dict(private=False)
    made = [
        Registration(
            "personal", "user", "client_secret_basic", "Example notes", "ES256", _password(), twin="personal-too"
        ),
        Registration("shared", "global", "client_secret_post", "Example team board", "RS256", _password()),
        Registration("signed", "user", "private_key_jwt", "Example ledger", secret=pem, public_key=public),
        Registration("public", "user", "none", "Example reader"),
        Registration(
            "terminal", "user", "client_secret_basic", "Example terminal", "ES256", _password(), flow="deviceCode"
        ),
        Registration("wall", "global", "client_secret_post", "Example wall", "RS256", _password(), flow="deviceCode"),
        Registration("direct", "user", "none", "Example calendar", link="direct"),
    ]
    return {registration.name: registration for registration in made}


def staff_client(home: str) -> dict[str, Any]:
    """The provider's side of the broker's own login."""
    return {
        "client_id": STAFF,
        "client_name": "Example staff",
        "token_endpoint_auth_method": "none",
        "redirect_uris": [f"{home}/login/callback"],
        "response_types": ["code"],
        "grant_types": ["authorization_code"],
    }


def write(
    folder: Path,
    base_url: str,
    issuer: str,
    apps: Iterable[Registration],
    locale: str = "en",
    more: Mapping[str, Any] | None = None,
) -> Path:
    """The bundle as files, as a person would have written it; store and key lie beside it. `more` is for the Broker."""
    bundle = folder / "config"
    bundle.mkdir()
    broker = {
        "publicBaseUrl": base_url,
        "listen": {"host": "127.0.0.1", "port": urlsplit(base_url).port},
        "store": {"root": "../store"},
        "keys": {"file": "../keys/broker.kek"},
        "locale": locale,
        "weaken": ["plainHttpProvider"],
        **(more or {}),
    }
    documents = [_resource("Broker", "broker", broker)]
    for app in apps:
        for name in app.names:
            documents.append(_resource("OAuthApp", name, app.app(name, issuer)))
            documents.append(_resource("Tool", f"{name}-reader", {"auth": {"oauthAppRef": f"OAuthApp/{name}"}}))
    (bundle / "bundle.yaml").write_text("\n---\n".join(documents), "utf-8")
    return bundle


def turn(user: str = "alice") -> Turn:
    """A turn that this person of team T111 caused."""
    return Turn(
        agent_name="planner",
        instance_key="1700000000.000100",
        swarm_ref="Swarm/default",
        origin={"connector": "slack-main", "channel": "C123"},
        auth=TurnAuth(
            actor={"type": "user", "id": f"example:{user}"},
            subjects={"global": "example:team:T111", "user": f"example:user:{user}"},
        ),
    )


def _resource(kind: str, name: str, spec: dict[str, Any]) -> str:
    resource = {"apiVersion": "agents.example.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return json.dumps(resource, indent=2)  # JSON is YAML


def _password() -> str:
    return AWKWARD + "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(40))
