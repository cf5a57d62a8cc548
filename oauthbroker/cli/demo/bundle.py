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

BUNDLE = """\
# yaml-language-server: $schema=../oauthbroker.schema.json
# Written by `oauthbroker demo`, which begins by removing it.
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {{name: broker}}
spec:
  publicBaseUrl: {base_url}
  listen: {{host: 127.0.0.1, port: {port}}}
  store: {{root: ..{url}}}            # relative to this file
  keys: {{file: {key_file}}}
  weaken: [plainHttpProvider]  # the demo's provider has no https; loopback only
---
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {{name: {app}}}
spec:
  title: Demo Mail
  provider: oidc
  flow: authorizationCode
  subjectMode: user            # one grant for each person
  client:
    clientId: {client_id}
    clientSecret: {{valueFrom: {{secretRef: {{ref: Secret/{secret}, key: {secret_key}}}}}}}
  endpoints: {{issuer: "{issuer}"}}
  scopes: [messages.read, messages.send]
  redirect: {{callbackPath: {callback_path}}}
  owner: {{identity: {{user: {{template: "demo:user:{{sub}}"}}}}}}
---
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {{name: messages}}
spec:
  auth: {{oauthAppRef: OAuthApp/{app}, scopes: [{scope}]}}  # it reads; it never asks to send
"""


def write_bundle(folder: Path, *, base_url: str, port: int, key_file: Path, issuer: str, in_database: bool) -> Path:
    """Write the bundle below `folder` and return its path. `in_database`: STORE_ENV has the URL of the store."""
    path = folder / "config"
    path.mkdir(mode=0o700)
    text = BUNDLE.format(
        base_url=base_url,
        port=port,
        key_file=json.dumps(str(key_file)),
        app=APP,
        client_id=CLIENT_ID,
        secret=SECRET[0],
        secret_key=SECRET[1],
        issuer=issuer,
        url=f", url: {{valueFrom: {{env: {STORE_ENV}}}}}" if in_database else "",
        callback_path=CALLBACK_PATH,
        scope=SCOPE,
    )
    (path / "demo.yaml").write_text(text, "utf-8")
    return path
