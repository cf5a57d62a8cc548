"""The surroundings of the example on one machine: a provider, a bundle in a folder, a sealed store."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from oauthbroker import check_config
from oauthbroker.testing import Client, IdentityProvider
from oauthbroker.tools import Changesets, open_changesets

BUNDLE = Path(__file__).with_name("bundle")
CLIENT_ID, SCOPE = "team-assistant", "messages.read"
CALLBACK_PATH = "/oauth/callback/demo-mail"
BROKER = """\
apiVersion: agents.example.io/v1alpha1
kind: Broker
metadata: {{name: broker}}
spec:
  publicBaseUrl: {base_url}
  store: {{root: "{folder}/data"}}
  keys: {{file: "{folder}/keys/broker.kek"}}
  plugins: [tools, gateway]
  weaken: [plainHttpProvider]  # the provider of the example has no https; loopback only
---
apiVersion: agents.example.io/v1alpha1
kind: OAuthApp
metadata: {{name: demo-mail}}
spec:
  title: Demo Mail
  provider: oidc
  flow: authorizationCode
  subjectMode: user
  client:
    clientId: {client_id}
    clientSecret: {{valueFrom: {{secretRef: {{ref: Secret/demo-mail, key: client_secret}}}}}}
  endpoints: {{issuer: "{issuer}"}}
  scopes: [{scope}]
  redirect: {{callbackPath: {callback_path}}}
  owner: {{identity: {{user: {{template: "demo:user:{{sub}}"}}}}}}
  api: {{hosts: ["{issuer}"], methods: [GET]}}
"""


@dataclass(frozen=True)
class Setting:
    """The provider, the folder with store and key, and another one with the bundle's repository."""

    provider: IdentityProvider
    folder: Path
    system: Path

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def repository(self) -> Path:
        return self.system / "bundle.git"

    def changesets(self) -> Changesets:
        """Open the changesets of the bundle."""
        state = [self.folder / "data", self.folder / "keys" / "broker.kek"]
        return open_changesets(self.repository, self.system / "changesets", check_config, apart_from=state)


class ErrorLog:
    """The broker's log: errors alone, so that the conversation can be read. Requests and warnings are left out."""

    def bind(self, **_fields: Any) -> ErrorLog:
        return self

    def info(self, event: str, **_fields: Any) -> None: ...

    def warning(self, event: str, **_fields: Any) -> None: ...

    def error(self, event: str, **fields: Any) -> None:
        logging.getLogger("broker").error("%s %s", event, fields)


@contextmanager
def prepared(base_url: str) -> Generator[Setting, None, None]:
    """Run a provider, and prepare a broker as an operator does. Everything is deleted at the end."""
    client = Client(CLIENT_ID, redirect_uris=(base_url + CALLBACK_PATH,), name="Team assistant")
    with (
        TemporaryDirectory(prefix="team-assistant-") as folder,
        TemporaryDirectory(prefix="team-assistant-bundle-") as system,
        IdentityProvider(clients=[client]) as provider,
    ):
        provider.resource_scope = SCOPE
        setting = Setting(provider, Path(folder), Path(system))
        _write(setting, base_url)
        _oauthbroker(setting, "init")
        secret = provider.client(CLIENT_ID).reveal_secret()
        _oauthbroker(setting, "secrets", "set", "demo-mail", "client_secret", given=secret)
        _committed(setting)
        yield setting


def _write(setting: Setting, base_url: str) -> None:
    """Copy the bundle, and write the parts that differ each time: addresses and ports."""
    shutil.copytree(BUNDLE, setting.config, ignore=shutil.ignore_patterns("__pycache__"))
    broker = BROKER.format(
        base_url=base_url,
        folder=setting.folder,
        client_id=CLIENT_ID,
        scope=SCOPE,
        issuer=setting.provider.issuer,
        callback_path=CALLBACK_PATH,
    )
    (setting.config / "broker.yaml").write_text(broker, "utf-8")
    places = {"mail": setting.provider.url("/api/messages")}
    (setting.config / "places.json").write_text(json.dumps(places), "utf-8")


def _committed(setting: Setting) -> None:
    """Make the bundle's bare repository."""
    author = ("-c", "user.name=operator", "-c", "user.email=operator@localhost")
    _run("git", "init", "-q", "-b", "main", str(setting.config))
    _run("git", "-C", str(setting.config), "add", ".")
    _run("git", "-C", str(setting.config), *author, "commit", "-q", "-m", "The bundle")
    _run("git", "clone", "-q", "--bare", str(setting.config), str(setting.repository))


def _oauthbroker(setting: Setting, *words: str, given: str = "") -> None:
    """Run a command of the broker."""
    _run(sys.executable, "-m", "oauthbroker", *words, "--config", str(setting.config), given=given)


def _run(*words: str, given: str = "") -> None:
    subprocess.run(words, input=given, text=True, check=True, stdout=subprocess.DEVNULL)
