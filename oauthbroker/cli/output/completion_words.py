"""Complete words in a shell: apps and secrets of the configuration, presets, and types of audit entries.

Reads the configuration only, never the store. Errors give no words and no message.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from oauthbroker.cli.output.options import CONFIG
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.refused import Refused
from oauthbroker.model.token_request import call_ref

if TYPE_CHECKING:
    from oauthbroker.config import Loaded


def app_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the configured apps, in the form that is being typed."""
    loaded, with_kind = _loaded(ctx), "/" in incomplete
    apps = loaded.apps.items() if loaded else ()
    return _fitting([f"{it.app.kind}/{name}" if with_kind else name for name, it in apps], incomplete)


def app_option(text: str) -> Any:
    """Return the option `--app`. Its value is the app's bare name, in either form of a reference."""
    return typer.Option("--app", help=text, autocompletion=app_names, callback=_named)


def _named(typed: str | None) -> str | None:
    try:
        return None if typed is None else call_ref(typed)
    except BrokerError:
        raise Refused(
            "--app takes the name of an app, or its kind and name, as in OAuthApp/name. Nothing was changed."
        ) from None


def secret_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the secrets that the configuration reads."""
    loaded = _loaded(ctx)
    return _fitting({name for name, _ in loaded.secret_keys} if loaded else (), incomplete)


def secret_keys(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the keys of the secret that is already typed."""
    loaded, name = _loaded(ctx), str(ctx.params.get("name") or "").removeprefix("Secret/")
    return _fitting({key for of, key in loaded.secret_keys if of == name} if loaded else (), incomplete)


def preset_names(incomplete: str) -> list[str]:
    from oauthbroker.providers import presets
    from oauthbroker.providers.credentials import credential_presets

    return _fitting(sorted({*presets(), *credential_presets()}), incomplete)


def entry_types(incomplete: str = "") -> list[str]:
    """Return the types of lines that an audit log can have, without those of plug-ins."""
    from oauthbroker.audit import AuditEntry
    from oauthbroker.audit.chain import LogEntry

    return _fitting([*AuditEntry.names(), *LogEntry.names()], incomplete)


def all_entry_types(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the same, and the types of the plug-ins in use."""
    from oauthbroker.plugins.discovery import declared, named

    loaded, found = _loaded(ctx), entry_types(incomplete)
    for name in loaded.settings.plugins if loaded else ():
        with suppress(BrokerError):
            plugin = declared(name)
            types = named(plugin, plugin.audit_types) if plugin.audit_types else ()
            found += _fitting([each.type_name() for each in types], incomplete)
    return found


def _loaded(ctx: typer.Context) -> Loaded | None:
    from oauthbroker.config.bundle.server_environment import load_here

    try:
        return load_here(Path(ctx.params.get("config") or CONFIG))
    except BrokerError:
        return None


def _fitting(words: Collection[str], incomplete: str) -> list[str]:
    return sorted(word for word in words if word.startswith(incomplete))
