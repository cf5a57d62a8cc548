"""The pages of the command line, from the commands' own help: a page for each first word, a section for each command."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import typer

from oauthbroker import cli
from oauthbroker.cli.plugin_commands import plugin_commands
from tools.site.reference.markdown import block, code, heading, prose, slug, table

INTRO = """\
# Commands

Made from `oauthbroker COMMAND --help`. [The command line](../docs/cli.md) says what all commands have in common: exit
statuses, lists, JSON and completion.

"""


def pages() -> dict[str, str]:
    found = dict(commands())
    overview = [
        (f"[{code(name)}](commands/{name.split()[0]}.md#{slug(name)})", prose(summary(each)))
        for name, each in found.items()
    ]
    made = {"commands.md": INTRO + table(("command", "effect"), overview)}
    for first, names in groupby(found, lambda name: name.split()[0]):
        sections = [
            f"# The command {code(first)}\n\n[All commands](../commands.md)\n",
            *(_section(name, found[name]) for name in names),
        ]
        made[f"commands/{first}.md"] = "\n".join(sections)
    return made


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command that `--help` shows, of ours and of the plug-ins, by its name, such as `grants list`."""
    plugins = plugin_commands(cli.COMMANDS)
    for name in (*cli.COMMANDS, *plugins.plugins):
        yield from _inner(name, cli.command_of(name) if name in cli.COMMANDS else plugins.command(name))


def _inner(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    parts = getattr(command, "commands", None)
    if parts is None:
        if not command.hidden:
            yield name, command
        return
    for part, each in parts.items():
        yield from _inner(f"{name} {part}", each)


def _paragraphs(command: Any) -> list[str]:
    text = inspect.cleandoc(command.help or command.callback.__doc__ or "")
    return [" ".join(each.split()) for each in re.split(r"\n\s*\n", text.replace("\b", "").replace("\f", ""))]


def summary(command: Any) -> str:
    """Return the first sentences of a command's help."""
    return _paragraphs(command)[0]


def _section(name: str, command: Any) -> str:
    context = typer.Context(command, info_name=f"oauthbroker {name}")
    usage = f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    lines = [heading(2, code(name), slug(name)), block(usage, "text")]
    lines += [f"{prose(each)}\n" for each in _paragraphs(command)]
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    lines.append(table(("argument or option", "meaning", "default"), (_row(each, context) for each in shown)))
    return "\n".join(lines)


def _row(parameter: Any, context: Any) -> tuple[str, str, str]:
    name, meaning = parameter.get_help_record(context) or (parameter.human_readable_name, "")
    meaning, _, extra = meaning.partition("  [") if parameter.param_type_name == "option" else (meaning, "", "")
    required = "required" if parameter.required else ""
    default = re.search(r"default: ([^\];]+)", extra)
    bounds = re.search(r"[\w.]*<?=?x[<>]=?[\w.]*", extra)
    text = prose(meaning.replace("  [required]", "").rstrip()) + (f" ({code(bounds[0])})" if bounds else "")
    return code(name), text, required or (code(default[1].strip()) if default else "")
