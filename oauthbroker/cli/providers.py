"""`oauthbroker providers`: show the facts known of each provider, with sources. Needs no configuration, and no network
but that of `new --issuer`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from oauthbroker.cli import credential_presets as credential_words
from oauthbroker.cli.new_provider import new_command
from oauthbroker.cli.output.completion_words import preset_names
from oauthbroker.cli.output.json_output import say
from oauthbroker.cli.output.options import AsJson
from oauthbroker.cli.output.tables import counted, shown
from oauthbroker.cli.stored_records import Listing
from oauthbroker.config.bundle.schema import SCHEMA_LINE
from oauthbroker.core.refused import Refused
from oauthbroker.core.spelling import nearest
from oauthbroker.providers import presets
from oauthbroker.providers.credentials import credential_presets
from oauthbroker.providers.preset import Preset
from oauthbroker.providers.registering import steps
from oauthbroker.providers.skeleton import app_name, app_yaml
from oauthbroker.providers.words import Fact, account, facts, flows, own_facts

UNSURE = "?"  # marks an unverified fact

app = typer.Typer(no_args_is_help=True, add_completion=False)
app.command("new")(new_command)
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `providers list` shows it.", autocompletion=preset_names)]


@app.command("list")
def list_command(
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="How many are shown at most; else all.")
    ] = None,
    as_json: AsJson = False,
    credentials: Annotated[bool, typer.Option("--credentials", help="Those of CredentialApps.")] = False,
) -> None:
    """List the presets."""
    none = "There are no presets."
    if credentials:
        keys = Listing(credential_words.HEAD, credential_words.row, credential_words.everything, none=none)
        keys.show([*credential_presets().values()], as_json=as_json, limit=limit)
        return
    head = ("name", "provider", "account, user", "account, global", "flows", "unverified")
    Listing(head, _row, _summary, none=none).show([*presets().values()], as_json=as_json, limit=limit)


@app.command("show")
def show_command(
    name: Name,
    as_json: AsJson = False,
    short: Annotated[bool, typer.Option("--short", help="Only what an app needs, and the app.")] = False,
) -> None:
    """Show one preset: what to register there, every fact with its source, and an app to start from. A provider may
    have one of each kind."""
    preset, key = presets().get(name), credential_presets().get(name)
    if key is not None and preset is None:
        say("\n".join(credential_words.rendered(key)), credential_words.everything(key), as_json=as_json)
        return
    if preset is None:
        close = nearest(name, {*presets(), *credential_presets()})
        instead = f"The nearest known one is {close}." if close else "`oauthbroker providers list` shows what there is."
        raise Refused(f"There is no preset of that name. {instead}")
    lines, members = _render_short(preset) if short else _render(preset), _everything(preset)
    if key is not None:
        lines += ["", "", *credential_words.rendered(key)]
        members["credential"] = credential_words.everything(key)
    say("\n".join(lines), members, as_json=as_json)


def _row(preset: Preset) -> tuple[str, ...]:
    unverified = preset.unverified()
    unsure = (account(preset, "user"), account(preset, "global"), flows(preset))
    return (
        preset.name,
        preset.title,
        *(text if sure else f"{text} {UNSURE}" for text, sure in unsure),
        counted(len(unverified), "fact") if unverified else "-",
    )


def _render(preset: Preset) -> list[str]:
    name = app_name(preset, next(iter(_modes(preset)), ""))
    lines = [_headline(preset), "", *steps(preset, name), "", *_lines(facts(preset))]
    for mode in _modes(preset):
        option = f"options: {{{preset.name}: {{{preset.modes.option}: {mode}}}}}" if preset.modes else ""
        lines += ["", f"With {option}", "", *_lines(own_facts(preset, mode))]
    count = len(preset.unverified())
    if count:
        note = f"{UNSURE} {counted(count, 'fact')} unverified: not found in writing. Try it before you rely on it."
        lines += ["", note]
    return [*lines, *_to_start_from(preset)]


def _render_short(preset: Preset) -> list[str]:
    """Return the decisions that an app needs, without sources."""
    rendered = {
        "account, user": account(preset, "user")[0],
        "account, global": account(preset, "global")[0],
        "flows": flows(preset)[0],
        "unverified": counted(len(preset.unverified()), "fact"),
    }
    return [
        _headline(preset),
        "",
        *(f"  {name:<16} {text}" for name, text in rendered.items()),
        *_to_start_from(preset),
    ]


def _headline(preset: Preset) -> str:
    page = f"https://{preset.documentation}" if preset.documentation else "no page is known"
    return f"{preset.title} ({preset.name}), {page}"


def _to_start_from(preset: Preset) -> list[str]:
    skeletons = "---\n".join(app_yaml(preset, mode) for mode in _modes(preset) or [""])
    return ["", "An OAuthApp to start from:", "", SCHEMA_LINE.rstrip(), *skeletons.splitlines()]


def _modes(preset: Preset) -> list[str]:
    return list(preset.modes.values) if preset.modes else []


def _lines(listed: list[Fact]) -> list[str]:
    """Return two lines per fact: its value and its source."""
    width = max((len(fact.label) for fact in listed), default=0)
    lines: list[str] = []
    for fact in listed:
        lines.append(f"{' ' if fact.is_sure else UNSURE} {fact.label.ljust(width)}  {shown(fact.text)}")
        lines.append(f"  {' ' * width}    {shown(fact.source)}")
    return lines


def _summary(preset: Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "title": preset.title,
        "documentation": preset.documentation,
        "flows": preset.flows,
        "params": list(preset.params),
        "identity": preset.identity.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True),
        "modes": _modes(preset),
        "unverified": preset.unverified(),
    }


def _everything(preset: Preset) -> dict[str, Any]:
    """Return the preset as in its file, with the source of every fact, and the apps to start from."""
    apps = {mode or "default": app_yaml(preset, mode) for mode in _modes(preset) or [""]}
    return {**preset.everything(), "apps": apps}
