"""Bundles written for a test: texts in which `@@` marks the place that a problem must name."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from oauthbroker.config import ConfigInvalidError, ConfigProblem, Loaded, load, resolve
from oauthbroker.core.secret import Secret
from oauthbroker.model.bundle import Bundle

CANARY = "plantedQ3Xw9"
MARK = "@@"
HEAD = "apiVersion: agents.example.io/v1alpha1\n"

BROKER = (
    HEAD
    + """kind: Broker
metadata: {name: broker}
spec:
  publicBaseUrl: https://broker.example
  listen: {host: 127.0.0.1, port: 8420}
"""
)
APP = (
    HEAD
    + """kind: OAuthApp
metadata: {name: acme}
spec:
  provider: acme
  flow: authorizationCode
  subjectMode: user
  client:
    clientId: {value: an-id}
    clientSecret: {valueFrom: {env: ACME_SECRET}}
  endpoints:
    authorizationUrl: https://acme.example/authorize
    tokenUrl: https://acme.example/token
  scopes: [read, write]
  redirect: {callbackPath: /oauth/callback/acme}
  owner:
    identity:
      user: {from: tokenResponse, template: "acme:user:{user.id}"}
"""
)
KEYED = (
    HEAD
    + """kind: CredentialApp
metadata: {name: meter}
spec:
  subjectMode: user
  fields: {apiKey: {title: API key}}
  inject: {bearer: "{apiKey}"}
  api: {hosts: [api.example.com]}
  owner: {binding: localOperator}
"""
)
GLOBAL = (
    HEAD
    + """kind: OAuthApp
metadata: {name: shared}
spec:
  provider: slack
  flow: authorizationCode
  subjectMode: global
  client:
    clientId: {value: an-id}
    clientSecret: {valueFrom: {secretRef: {ref: Secret/slack, key: client_secret}}}
  scopes: ["chat:write"]
  owner: {authorizers: ["slack:user:T1:U1"]}
"""
)
TOOL = (
    HEAD
    + """kind: Tool
metadata: {name: hammer}
spec:
  entry: ./hammer.js
  auth: {oauthAppRef: OAuthApp/acme, scopes: [read, write]}
  exports:
    - {name: hit, auth: {scopes: [read]}}
    - {name: hold}
"""
)
CONNECTOR = (
    HEAD
    + """kind: Connector
metadata: {name: chat}
spec:
  type: slack
  auth: {staticToken: {valueFrom: {env: CHAT_TOKEN}}}
"""
)
HOOK = (
    HEAD
    + """kind: Forwarder
metadata: {name: hook}
spec:
  agents: [planner, writer]
  webhook:
    url: https://runtime.example/events
    secrets: [{valueFrom: {env: HOOK_SECRET}}, {valueFrom: {secretRef: {ref: Secret/hook, key: next}}}]
"""
)


def edited(text: str, *changes: tuple[str, str]) -> str:
    """The text with every (old, new) replaced once; an old that is not there is a mistake of the test."""
    for old, new in changes:
        assert 1 == text.count(old), f"{old!r} stands {text.count(old)} times"
        text = text.replace(old, new)
    return text


def unmarked(text: str) -> tuple[str, tuple[int, int]]:
    """The text without its mark, and the mark's line and column."""
    before, mark, after = text.partition(MARK)
    assert mark, "the text marks no place"
    return before + after, (before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def bundle(folder: Path, text: str = BROKER) -> Path:
    """Return a folder of one file, with space beside it."""
    config = folder / "config"
    config.mkdir()
    (config / "broker.yaml").write_text(text, "utf-8")
    return config


def write(folder: Path, **texts: str) -> Path:
    """`name=text` as `name.yaml` in the folder."""
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        folder.joinpath(f"{name}.yaml").write_text(text, "utf-8")
    return folder


def refused(path: Path) -> ConfigInvalidError:
    with pytest.raises(ConfigInvalidError) as caught:
        load(path)
    return caught.value


def problems_in(path: Path) -> tuple[ConfigProblem, ...]:
    return refused(path).problems


def loaded_with_values(path: Path) -> tuple[Loaded, Bundle]:
    loaded = load(path)
    env = dict.fromkeys(loaded.env_names, "from-the-environment")
    return loaded, resolve(loaded, env, {key: Secret("from-the-store") for key in loaded.secret_keys})


def everything_said(error: BaseException) -> str:
    """All that an exception can print, its chain included."""
    texts = []
    current: BaseException | None = error
    while current is not None:
        texts += [str(current), repr(current), repr(current.args), repr(vars(current))]
        texts += list(getattr(current, "__notes__", []))
        texts.append("".join(traceback.format_exception_only(current)))
        current = current.__cause__ or current.__context__
    return "\n".join(texts)
