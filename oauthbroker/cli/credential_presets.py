"""The presets of CredentialApps for `oauthbroker providers`, and for their page in docs/."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oauthbroker.cli.output.tables import counted, shown
from oauthbroker.config.bundle.schema import SCHEMA_LINE
from oauthbroker.providers.credentials.credential_preset import CredentialPreset

HEAD = ("name", "provider", "fields", "carried in", "checked by", "account", "unverified")


def row(preset: CredentialPreset) -> tuple[str, ...]:
    """Return the preset in one row under HEAD."""
    count = len(preset.unverified())
    return (
        preset.name,
        preset.title,
        ", ".join(it.title for it in preset.fields.values()),
        _carried(preset),
        f"{preset.verify.method} {preset.verify.host}{preset.verify.path}" if preset.verify is not None else "nothing",
        (preset.verify.account if preset.verify is not None else "") or "-",
        counted(count, "fact") if count else "-",
    )


def rendered(preset: CredentialPreset) -> list[str]:
    """Return every fact with its source, and a CredentialApp to start from."""
    page = f"https://{preset.documentation}" if preset.documentation else "no page is known"
    lines = [f"{preset.title} ({preset.name}), a key or another static credential, {page}", ""]
    for path, text in facts_of(preset):
        source = preset.source(path)
        lines.append(f"{'?' if source.startswith('unverified') else ' '} {path:<16}  {shown(text)}")
        lines.append(f"  {'':<16}    {shown(source)}")
    if count := len(preset.unverified()):
        lines += ["", f"? {counted(count, 'fact')} unverified: not found in writing. Try it before you rely on it."]
    return [*lines, "", "A CredentialApp to start from:", "", SCHEMA_LINE.rstrip(), *app_yaml(preset).splitlines()]


def everything(preset: CredentialPreset) -> dict[str, Any]:
    """Return the preset as in its file, with the source of every fact, and the app to start from."""
    return {"kind": "CredentialApp", **preset.everything(), "apps": {"default": app_yaml(preset)}}


def app_yaml(preset: CredentialPreset) -> str:
    """Return an app that takes everything from the preset. Whose credential it is must be known: from the answer of its
    check, or because the broker knows who types it."""
    lines = [
        "apiVersion: agents.example.io/v1alpha1",
        "kind: CredentialApp",
        f"metadata: {{name: {preset.name}}}",
        "spec:",
        f"  provider: {preset.name}",
        "  subjectMode: user",
    ]
    needed = [name for name, param in preset.params.items() if not param.default]
    if needed:
        lines += ["  params:", *(f"    {name}: ... # {preset.params[name].description}" for name in needed)]
    if preset.verify is None or not preset.verify.account:
        lines.append("  owner: {binding: brokerLogin} # or localOperator on loopback; verify.account would do, too")
    return "\n".join([*lines, ""])


def _carried(preset: CredentialPreset) -> str:
    placement = preset.inject.placement()
    names = ", ".join(placement.texts) if placement.kind in {"headers", "query"} else ""
    beside = f"; headers: {', '.join(placement.beside)}" if placement.beside else ""
    return f"{placement.kind}{f': {names}' if names else ''}{beside}"


def facts_of(preset: CredentialPreset) -> Iterator[tuple[str, str]]:
    """Yield the path and the words of every fact."""
    for path in preset.fact_paths():
        kind, _, name = path.partition(".")
        if kind == "fields":
            field = preset.fields[name]
            yield path, " ".join(filter(None, (field.title, field.pattern, field.obtain)))
        elif kind == "params":
            yield path, preset.params[name].description
        elif kind == "notes":
            yield path, preset.notes[int(name)]
        elif kind == "inject":
            yield path, _carried(preset)
        elif kind == "verify" and preset.verify is not None:
            yield path, f"{preset.verify.method} {preset.verify.path} {preset.verify.account}".rstrip()
        else:
            yield (
                path,
                _plain(getattr(preset, {"apiHosts": "api_hosts", "apiBasePath": "api_base_path"}.get(path, path))),
            )


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value.days} days" if hasattr(value, "days") else str(value)
