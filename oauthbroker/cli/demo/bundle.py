"""Write the demo's configuration, in the form that operators use: one Broker, one OAuthApp, one Tool."""

from __future__ import annotations

import json
from pathlib import Path

APP = "demo-mail"
CLIENT_ID = "oauthbroker-demo"
CALLBACK_PATH = f"/oauth/callback/{APP}"
SECRET = ("demo-mail", "client_secret")
SCOPE = "messages.read"
TOOL = "Tool/messages"
STORE_ENV = "DEMO_STORE_URL"


def write_bundle(folder: Path, *, base_url: str, port: int, key_file: Path, issuer: str, in_database: bool) -> Path:
    """Write the bundle below `folder` and return its path. `in_database`: STORE_ENV has the URL of the store."""
    path = folder / "config"
    path.mkdir(mode=0o700)
    database = f", url: {{valueFrom: {{env: {STORE_ENV}}}}}" if in_database else ""
    text = f"""\
# yaml-language-server: $schema=../oauthbroker.schema.json
# Written by `oauthbroker demo`, which begins by removing it.
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {{name: broker}}
spec:
  publicBaseUrl: {base_url}
  listen: {{host: 127.0.0.1, port: {port}}}
  store: {{root: ..{database}}}            # relative to this file
  keys: {{file: {json.dumps(str(key_file))}}}
  weaken: [plainHttpProvider]  # the demo's provider has no https; loopback only
---
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {{name: {APP}}}
spec:
  title: Demo Mail
  provider: oidc
  flow: authorizationCode
  subjectMode: user            # one grant for each person
  client:
    clientId: {CLIENT_ID}
    clientSecret: {{valueFrom: {{secretRef: {{ref: Secret/{SECRET[0]}, key: {SECRET[1]}}}}}}}
  endpoints: {{issuer: "{issuer}"}}
  scopes: [messages.read, messages.send]
  redirect: {{callbackPath: {CALLBACK_PATH}}}
  owner: {{identity: {{user: {{template: "demo:user:{{sub}}"}}}}}}
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {{name: messages}}
spec:
  auth: {{oauthAppRef: OAuthApp/{APP}, scopes: [{SCOPE}]}}  # it reads; it never asks to send
"""
    (path / "demo.yaml").write_text(text, "utf-8")
    return path
