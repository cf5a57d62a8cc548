"""The surroundings of the examples on one machine: a provider, a configuration in a folder, a sealed store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from oauthbroker.testing import Client, IdentityProvider

BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {{name: broker}}
spec:
  publicBaseUrl: {base_url}
  store: {{root: ../data}}
  keys: {{file: ../keys/broker.kek}}
  plugins: [integrations]
  advanced: {{queueLeaseSeconds: {lease_seconds}}}
  weaken: [plainHttpProvider]  # the provider of the example has no https; loopback only
"""
APP = """\
---
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {{name: {name}}}
spec:
  title: Demo {title}
  provider: oidc
  flow: authorizationCode
  subjectMode: user
  client:
    clientId: demo
    clientSecret: {{valueFrom: {{secretRef: {{ref: Secret/demo, key: client_secret}}}}}}
  endpoints: {{issuer: "{issuer}"}}
  scopes: [read]
  owner: {{identity: {{user: {{template: "demo:user:{{sub}}"}}}}}}
  api: {{hosts: ["{issuer}"], methods: [GET]}}
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {{name: {name}}}
spec:
  auth: {{oauthAppRef: OAuthApp/{name}, delivery: injected}}
"""
PLACES = {"mail": "/api/messages", "files": "/api/me"}


def prepare(
    folder: Path, provider: IdentityProvider, base_url: str, *, lease_seconds: int = 60, apps: tuple[str, ...] = ()
) -> Path:
    """Prepare a broker for Alice as an operator does. Return the folder of its configuration. More `apps` of the same
    client are the caller's."""
    config = folder / "config"
    config.mkdir()
    text = BROKER.format(base_url=base_url, lease_seconds=lease_seconds)
    text += "".join(APP.format(name=name, title=name.title(), issuer=provider.issuer) for name in PLACES)
    (config / "broker.yaml").write_text(text, "utf-8")
    _oauthbroker(config, "init")
    client = provider.register(
        Client("demo", redirect_uris=tuple(f"{base_url}/oauth/callback/{name}" for name in (*PLACES, *apps)))
    )
    _oauthbroker(config, "secrets", "set", "demo", "client_secret", given=client.reveal_secret())
    places = json.dumps({name: provider.url(path) for name, path in PLACES.items()})
    origin = {"places": places, "user": f"demo:user:{provider.account('alice').sub}"}
    (config / "origin.json").write_text(json.dumps(origin), "utf-8")
    return config


def _oauthbroker(config: Path, *words: str, given: str = "") -> None:
    command = [sys.executable, "-m", "oauthbroker", *words, "--config", str(config)]
    subprocess.run(command, input=given, text=True, check=True, stdout=subprocess.DEVNULL)
