"""`oauthbroker init --server`: a folder to serve from. It has the apps as a bundle, its store and key, an API key, and
the files that start it, for systemd and for a container engine."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from oauthbroker.cli.output.new_files import copy_folder, new_file
from oauthbroker.cli.server_files import BROKER, COMPOSE, MONITORING, UNIT
from oauthbroker.config import ConfigInvalidError, Loaded, load
from oauthbroker.config.bundle.schema import FILE_NAME, SCHEMA_LINE, write_schema
from oauthbroker.config.bundle.showing import CA, as_yaml, resources_of
from oauthbroker.core.clock import SystemClock
from oauthbroker.core.dataclasses import dataclass
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.printed_commands import with_config
from oauthbroker.core.refused import Refused
from oauthbroker.core.secret import Secret
from oauthbroker.core.version import VERSION
from oauthbroker.model.apps import App
from oauthbroker.personal.places import PORT
from oauthbroker.wiring import init_store, open_vault, with_keys

KINDS: Final = ("OAuthApp", "CredentialApp")
_PROXY: Final = "outgoingProxy"
_KEPT: Final = ("weaken", CA, _PROXY)  # of the source's Broker: the apps may not load, or not be reached, without them


@dataclass(frozen=True, slots=True, kw_only=True)
class NewServer:
    """A folder and its contents. `weaken` are checks that its source has turned off, `missing` the secrets that the
    store still needs, `unset` the variables without a value, `callbacks` the addresses that the providers have to
    know."""

    folder: Path
    apps: tuple[str, ...]
    weaken: tuple[str, ...]
    missing: tuple[tuple[str, str], ...]
    unset: tuple[str, ...]
    callbacks: tuple[str, ...]


def make_server(folder: Path, source: Path | None, env: Mapping[str, str]) -> NewServer:
    """Make the folder, all of it or nothing. Raises Refused for one that has files, ConfigInvalidError for a source
    that is refused, and store codes."""
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(f"{folder} has files already. Name a new folder.")
    try:
        return _made(folder, source, env)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _make_folders(folder: Path) -> None:
    """Raises Refused where no folder can be made."""
    try:
        for each in (folder, folder / "config" / "apps", folder / "keys"):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    except (FileNotFoundError, NotADirectoryError, PermissionError, FileExistsError):
        pass
    raise Refused(f"{folder} cannot be made. Name a folder where you may write.")


def _made(folder: Path, source: Path | None, env: Mapping[str, str]) -> NewServer:
    _make_folders(folder)
    config, resources = folder / "config", resources_of(source, env) if source is not None else []
    for resource in resources:
        _copy_certificates(config / "ca", resource)
    broker: dict[str, Any] = next((each["spec"] for each in resources if each["kind"] == "Broker"), {})
    weaken = list(broker.get("weaken", ()))
    kept = {name: broker[name] for name in _KEPT if broker.get(name)}
    lines = "".join(f"  {name}: {json.dumps(value)}\n" for name, value in kept.items())
    base, port = _address(source, env)
    written = BROKER.format(base=json.dumps(base), port=port)
    (config / "broker.yaml").write_text(SCHEMA_LINE + written + lines, "utf-8")
    apps = {each["metadata"]["name"]: each for each in resources if each["kind"] in KINDS}
    for name, resource in apps.items():
        _write_app(config, config / "apps" / f"{name}.yaml", resource)
    write_schema(config)
    loaded = load(config)
    secrets = asyncio.run(_fill(loaded, source, env, folder / "api-key"))
    found = {name: env.get(name, "") for name in sorted(loaded.env_names)}
    variables = {"POSTGRES_PASSWORD": SystemClock().random_bytes(24).hex(), **found}
    _write_secret(folder / ".env", "".join(f"{name}={_quoted(value)}\n" for name, value in variables.items()))
    (folder / "compose.yaml").write_text(
        COMPOSE.format(version=VERSION, uid=os.getuid(), gid=os.getgid(), port=port), "utf-8"
    )
    (folder / "oauthbroker.service").write_text(_unit(folder), "utf-8")
    copy_folder(MONITORING, folder / "monitoring")
    return NewServer(
        folder=folder,
        apps=tuple(apps),
        weaken=tuple(weaken),
        missing=tuple(sorted(loaded.secret_keys - secrets)),
        unset=tuple(name for name, value in found.items() if not value),
        callbacks=tuple(f"{base}{app.redirect.callback_path}" for app in _with_callback(loaded)),
    )


def _address(source: Path | None, env: Mapping[str, str]) -> tuple[str, int]:
    """Return the address of the pages and their port, which the providers know already if there is a source."""
    if source is None:
        return f"http://127.0.0.1:{PORT}", PORT
    settings = load(source, env).settings
    return settings.public_base_url, settings.listen_port


def _with_callback(loaded: Loaded) -> Iterator[App]:
    """Yield the apps whose callback a person registers. An MCP server learns it from the broker."""
    for draft in loaded.apps.values():
        app = draft.app
        if app.has_callback and app.credential is None and (app.mcp is None or app.mcp.has_client):
            yield app


def _copy_certificates(folder: Path, resource: dict[str, Any]) -> None:
    """Copy the certificates that a resource names, since a container sees no other folder."""
    spec = resource["spec"]
    if resource["kind"] in KINDS:
        _copy(folder, spec, CA, resource["metadata"]["name"], "../ca")
    if resource["kind"] == "Broker":
        _copy(folder, spec, CA, "_broker", "ca")
        _copy(folder, spec.get(_PROXY) or {}, "ca", "_proxy", "ca")


def _copy(folder: Path, part: dict[str, Any], member: str, name: str, as_seen: str) -> None:
    if found := part.get(member):
        folder.mkdir(mode=0o700, exist_ok=True)
        shutil.copyfile(found, folder / f"{name}.pem")
        part[member] = f"{as_seen}/{name}.pem"


def _write_app(config: Path, path: Path, resource: dict[str, Any]) -> None:
    """Write an app for many users: the person at this machine no longer confirms its owners, if something else can."""
    line = SCHEMA_LINE.replace("../", "../../")
    for each in (_for_users(resource), resource):
        path.write_text(line + as_yaml([each]), "utf-8")
        try:
            load(config)
        except ConfigInvalidError:
            continue
        return


def _for_users(resource: dict[str, Any]) -> dict[str, Any]:
    spec = dict(resource["spec"])
    owner = dict(spec.get("owner") or {})
    if owner.pop("binding", "") != "localOperator":
        return resource
    spec.pop("accounts", None)
    spec["owner"] = owner
    return {**resource, "spec": {name: value for name, value in spec.items() if value != {}}}


async def _fill(
    loaded: Loaded, source: Path | None, env: Mapping[str, str], key_file: Path
) -> frozenset[tuple[str, str]]:
    """Make the store with its key, the secrets of the apps and an API key. Return the secrets that it has."""
    settings = with_keys(loaded.settings, {})
    await asyncio.to_thread(init_store, settings, {}, SystemClock())
    known = await _secrets_of(source, env, loaded.secret_keys)
    async with open_vault(settings, env={}) as vault:
        for (name, key), value in known.items():
            await vault.secrets.put(name, key, value)
        _, api_key = await vault.api_keys.create("runtime", ["runtime"])
    _write_secret(key_file, api_key.reveal() + "\n")
    return frozenset(known)


async def _secrets_of(
    source: Path | None, env: Mapping[str, str], wanted: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], Secret]:
    """Return the secrets that the source's store has; none if it does not open here."""
    if source is None:
        return {}
    try:
        async with open_vault(load(source, env).settings, env=env) as vault:
            found = await vault.secrets.repository.secrets.all()
    except BrokerError:
        return {}
    return {key: found[key] for key in wanted if key in found}


def _write_secret(path: Path, text: str) -> None:
    with new_file(path, 0o600) as file:
        file.write(text)


def _quoted(value: str) -> str:
    """Return a value for `.env`, which compose reads too: single quotes keep every character but themselves."""
    if "\n" in value or "'" in value:
        return ""
    return f"'{value}'" if value else ""


def _unit(folder: Path) -> str:
    place = str(folder).replace("%", "%%")
    python = os.path.normpath(sys.executable).replace("%", "%%")
    return UNIT.format(user=getpass.getuser(), python=python, folder=place)


def lines_about(made: NewServer) -> list[str]:
    """Return the contents of the folder, and the next steps."""
    config = str(made.folder / "config")
    apps = ", ".join(made.apps) or "none: put OAuthApps into config/apps"
    lines = [
        f"Made {made.folder}: config ({apps}), store, keys, {FILE_NAME}",
        "  api-key               the key of your runtime, for OAUTHBROKER_API_KEY; it is nowhere else",
        "  .env                  values that the server reads; compose.yaml reads them too",
        "  oauthbroker.service   for systemd",
        "  compose.yaml          the broker and PostgreSQL; its first lines say how to begin",
        "  monitoring            rules of alerts for Prometheus, and a dashboard for Grafana",
    ]
    if made.weaken:
        lines.append(f"Checks are off, as in the configuration before: spec.weaken: {', '.join(made.weaken)}")
    lines += [f"Its callback, registered at the provider: {each}" for each in made.callbacks]
    lines += [f"Fill in {name} in {made.folder / '.env'}." for name in made.unset]
    lines += [with_config(f"Run: `oauthbroker secrets set {name} {key}`", config) for name, key in made.missing]
    return [*lines, with_config("Run: `oauthbroker serve`", config)]
