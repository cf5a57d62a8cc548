"""The file of an app, made of a person's answers: the resource that a server reads, too. Its secret is in the store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import yaml

from oauthbroker.config import ConfigInvalidError, load
from oauthbroker.config.bundle.schema import SCHEMA_LINE, write_schema
from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.core.refused import Refused
from oauthbroker.core.secret import Secret
from oauthbroker.core.sentences import two_sentences
from oauthbroker.grants.grants import Secrets
from oauthbroker.personal.places import PORT, Places
from oauthbroker.providers import presets

API_VERSION = "agents.example.io/v1alpha1"
SECRET_KEY = "client_secret"
PUBLIC = ("authMethod", "none")  # of a client without a secret
MCP = "mcp"
_ANSWERED = frozenset({"provider", "params", "flow", "client", "scopes", "subjectMode", "accounts", "owner"})
_TRIED_SECRET: Final = "LOGIN_CLIENT_SECRET"  # a variable of the configuration that is tried; set for no process
NAMED_LOCALHOST = frozenset({"microsoft"})  # takes a callback without https at the name `localhost` alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a person said of one app. `secret` is that of the client; None for a public one. `mcp` are the members of
    an MCP server's app."""

    provider: str
    kind: str = "OAuthApp"
    flow: str = "authorizationCode"
    client_id: str = ""
    secret: Secret | None = None
    scopes: tuple[str, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    issuer: str = ""
    mcp: Mapping[str, Any] = field(default_factory=dict)

    def resource(self, name: str) -> dict[str, Any]:
        """Return the resource, without the secret."""
        spec: dict[str, Any] = {"provider": self.provider}
        if self.params:
            spec["params"] = dict(self.params)
        if self.kind == "OAuthApp":
            spec |= self._oauth_app(name)
        spec |= {"subjectMode": "user", "accounts": "several"}
        spec["owner"] = {"binding": "localOperator", **self._identity(name)}
        return {"apiVersion": API_VERSION, "kind": self.kind, "metadata": {"name": name}, "spec": spec}

    def _oauth_app(self, name: str) -> dict[str, Any]:
        proof: dict[str, Any] = dict([PUBLIC]) if self.secret is None else {"clientSecret": secret_of(name)}
        client = {"client": {"clientId": self.client_id, **proof}} if self.client_id else {}
        issuer: dict[str, Any] = {"endpoints": {"issuer": self.issuer}} if self.issuer else {}
        if self.issuer and not presets()[self.provider].api_hosts:  # `.client()` sends the token nowhere else
            issuer["api"] = {"hosts": [_host_of(self.issuer)]}
        return {"flow": self.flow, **client, **issuer, **self.mcp, "scopes": list(self.scopes)}

    def _identity(self, name: str) -> dict[str, Any]:
        """Return a spelling of accounts for a provider whose preset has none, so that one is told from another."""
        preset = presets().get(self.provider)
        rule = preset.identity.user if preset is not None else None
        if self.kind != "OAuthApp" or rule is None or rule.template:
            return {}
        return {"identity": {"user": {"template": f"{name}:user:{{sub}}"}}}


def secret_of(name: str) -> dict[str, Any]:
    """Return where an app's resource finds the secret of its client."""
    return {"valueFrom": {"secretRef": {"ref": f"Secret/{name}", "key": SECRET_KEY}}}


def _host_of(issuer: str) -> str:
    """Return the host of an address as `api.hosts` has it: without `https://`."""
    scheme, _, rest = issuer.partition("://")
    host = rest.partition("/")[0]
    return host if scheme == "https" else f"{scheme}://{host}"


class AppChange(NamedTuple):
    """An app as it shall be, and its client secret if that is a new one. A login tries it first, so that a wrong client
    id or secret changes nothing."""

    name: str
    resource: Mapping[str, Any]
    secret: Secret | None = None

    @contextmanager
    def tried(self, places: Places, env: Mapping[str, str]) -> Iterator[tuple[Path, Mapping[str, str]]]:
        """Give a configuration with the changed app alone, and its variables, for the block."""
        resource: dict[str, Any] = dict(self.resource)
        if self.secret is not None:
            source = {"clientSecret": {"valueFrom": {"env": _TRIED_SECRET}}}
            resource["spec"] = {**resource["spec"], "client": resource["spec"]["client"] | source}
            env = {**env, _TRIED_SECRET: self.secret.reveal()}
        with TemporaryDirectory(prefix=".login-", dir=places.root) as folder:  # beside the store, as the other one is
            Path(folder, places.broker_file.name).write_bytes(places.broker_file.read_bytes())
            Path(folder, "app.yaml").write_text(text_of(resource), "utf-8")
            yield Path(folder), env

    async def keep(self, places: Places, secrets: Secrets) -> None:
        """Store the change. Raises Refused for an app that no server would take."""
        if self.secret is not None:
            await secrets.put(self.name, SECRET_KEY, self.secret)
        write_app(places, self.name, self.resource)


def read_app(places: Places, name: str) -> dict[str, Any]:
    """Return the resource in an app's file. Raises Refused for a file that holds another thing."""
    found = _read(places.app_file(name))
    if not isinstance(found.get("spec"), dict):
        raise Refused(f"{places.app_file(name)} holds no app. Move it away, then run: oauthbroker login {name}")
    return found


def is_of_answers(places: Places, name: str) -> bool:
    """Return whether an app of a preset has no member that a person wrote beside the answers."""
    return set(read_app(places, name)["spec"]) <= _ANSWERED


def write_app(places: Places, name: str, resource: Mapping[str, Any]) -> None:
    """Check an app, then write its file in one step. Raises Refused as `check_app`."""
    check_app(places, resource)
    write_schema(places.config)
    _write(places.app_file(name), text_of(resource))


def check_app(places: Places, resource: Mapping[str, Any]) -> None:
    """Check an app as a server does. Raises Refused with each problem."""
    with TemporaryDirectory() as folder:
        Path(folder, "bundle.yaml").write_text(f"{text_of(_broker(places))}---\n{text_of(resource)}", "utf-8")
        try:
            load(folder)
        except ConfigInvalidError as refused:
            at = f"in spec of {places.broker_file}"  # which has the Broker resource here
            hints = [it.hint.replace("in the Broker resource", at) for it in refused.problems]
            said = [
                f"{it.path}: {two_sentences(it.what, hint)}" for it, hint in zip(refused.problems, hints, strict=True)
            ]
        else:
            return
    raise Refused("\n".join(said))


def remove_app(places: Places, name: str) -> None:
    places.app_file(name).unlink(missing_ok=True)


def write_broker(places: Places, *, host: str = "127.0.0.1", port: int = PORT) -> None:
    """Say where callbacks come back to, if that is new. What a person wrote beside it stays."""
    broker = _broker(places)
    wanted = {"publicBaseUrl": f"http://{host}:{port}", "listen": {"host": host, "port": port}}
    if wanted.items() <= broker["spec"].items():
        return
    broker["spec"] |= wanted
    _write(places.broker_file, text_of(broker))


def keys_of(places: Places) -> Any:
    """Return what the person's configuration says of the key; None if nothing: it is in its file then."""
    return _broker(places)["spec"].get("keys")


def write_keys(places: Places, keys: Mapping[str, Any]) -> None:
    """Say where the key is, durably: the old place is cleared next."""
    broker = _broker(places)
    broker["spec"]["keys"] = dict(keys)
    _write(places.broker_file, text_of(broker))


def port_of(places: Places) -> int:
    """Return the port of the callbacks."""
    listen = _broker(places)["spec"].get("listen")
    port = listen.get("port") if isinstance(listen, dict) else None
    return port if isinstance(port, int) else PORT


def host_for(provider: str) -> str:
    """Return the host of callbacks of this provider."""
    return "localhost" if provider in NAMED_LOCALHOST else "127.0.0.1"


def _broker(places: Places) -> dict[str, Any]:
    broker = _read(places.broker_file)
    head = {"apiVersion": API_VERSION, "kind": "Broker", "metadata": {"name": "broker"}}
    spec = broker.get("spec")
    return {**head, **broker, "spec": dict(spec) if isinstance(spec, dict) else {}}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (yaml.YAMLError, UnicodeDecodeError):
        found = None
    if isinstance(found, dict):
        return found
    raise Refused(f"{path} is no YAML of one resource. Mend it, or move it away.")


def text_of(resource: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(resource), sort_keys=False, allow_unicode=True)


def _write(path: Path, text: str) -> None:
    """Replace a file in one step, durably. Raises Refused, and the earlier one is there then."""
    try:
        _replace(path, text)
    except OSError as error:
        why = error.strerror or "it cannot be written"
    else:
        return
    raise Refused(f"Cannot write {path}: {why}. Free space there, or correct the mode of its folder.")


def _replace(path: Path, text: str) -> None:
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(SCHEMA_LINE + text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
