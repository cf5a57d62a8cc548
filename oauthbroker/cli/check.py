"""`oauthbroker check`: validate a configuration. Reports every problem at once; starts and writes nothing.

Exit status: 0 valid (perhaps with warnings), 2 refused. Problems and warnings go to stderr, the overview to stdout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from oauthbroker.admin.operator_login import CALLBACK_PATH as OPERATORS_CALLBACK_PATH
from oauthbroker.cli.doctor.missing_values import NOTHING, MissingValues, missing_values, print_missing_values
from oauthbroker.cli.output.commands_here import name_config, runnable
from oauthbroker.cli.output.credential_words import credential_json, facts_of
from oauthbroker.cli.output.error_output import tell_problems
from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.options import CONFIG, AsJson, ConfigPath
from oauthbroker.cli.output.tables import counted, table
from oauthbroker.config import ConfigInvalidError, ConfigProblem, Loaded
from oauthbroker.config.bundle.server_environment import load_here
from oauthbroker.config.bundle.unresolved_bundle import AppDraft, LoginDraft
from oauthbroker.config.problems.problems import Problems, SourcePlace
from oauthbroker.config.reading.ignored import IgnoredResource
from oauthbroker.config.reading.writers import open_to_all
from oauthbroker.core.refused import REFUSED
from oauthbroker.model.apps import App
from oauthbroker.model.outgoing_proxy import PROXY_RESOLVES
from oauthbroker.model.scope_ceiling import NO_RIGHTS
from oauthbroker.plugins.discovery import declared, problems_of
from oauthbroker.providers.quirks import quirks_of

MOST_SKIPPED = 20
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*)://")

app = typer.Typer(add_completion=False)


@app.command("check")
def check_command(
    path: Annotated[Path | None, typer.Argument(help="A YAML file, or a folder of them.")] = None,
    config: ConfigPath = CONFIG,
    as_json: AsJson = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Warnings are problems too, such as a variable that is not set.")
    ] = False,
) -> None:
    """Check a configuration and list its contents."""
    path = path or config
    if path != CONFIG:
        name_config(str(path))
    loaded, problems = _load(path)
    problems = [*problems, *([*_other_databases(loaded, path), *_broken_plugins(loaded, path)] if loaded else ())]
    said = [*loaded.idle_refs, *loaded.unknown_variables, *open_to_all(path)] if loaded else []
    warnings = [*_unset(loaded), *said] if loaded else []
    if strict:
        problems, warnings, said = [*problems, *warnings], [], []
    here = missing_values(loaded) if loaded and not problems else NOTHING
    if as_json:
        answer(_as_json(loaded, problems, warnings, here))
    else:
        _tell(path, loaded, problems, said)
        print_missing_values(here)
    if problems:
        raise typer.Exit(REFUSED)


def _load(path: Path) -> tuple[Loaded | None, list[ConfigProblem]]:
    try:
        return load_here(path), []
    except ConfigInvalidError as refused:
        return None, [replace(each, hint=runnable(each.hint)) for each in refused.problems]


def _unset(loaded: Loaded) -> list[ConfigProblem]:
    """Return warnings for values that the environment lacks. They may be set where the broker runs."""
    missing = Problems()
    for source in loaded.sources:
        if source.env and not loaded.env.get(source.env):
            source.report_missing(missing)
    return [replace(each, hint=runnable(each.hint)) for each in missing.found]


def _other_databases(loaded: Loaded, path: Path) -> Iterator[ConfigProblem]:
    """Yield a problem for each database's URL of another scheme than PostgreSQL's. Connects to none."""
    settings = loaded.settings
    for place, name in ("url", settings.store_url_env), ("directUrl", settings.store_direct_url_env):
        scheme = _SCHEME.match(loaded.env.get(name, "")) if name else None
        if scheme is not None and scheme[1] not in {"postgresql", "postgres"}:
            what = f"environment {name} is no URL of PostgreSQL"
            yield ConfigProblem.at(SourcePlace(str(path)), f"spec.store.{place}", what, "begin it with postgresql://")


def _broken_plugins(loaded: Loaded, path: Path) -> Iterator[ConfigProblem]:
    """Yield a problem for each function of a named plug-in that a broker could not import."""
    for name in loaded.settings.plugins:
        for problem in problems_of(declared(name)):
            hint = "update the package of the plug-in, or remove its name"
            yield ConfigProblem.at(SourcePlace(str(path)), "spec.plugins", problem, hint)


def _tell(path: Path, loaded: Loaded | None, problems: list[ConfigProblem], warnings: list[ConfigProblem]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
    if problems or loaded is None:
        tell_problems(problems)
        return
    off = [f"a check is off: {name}" for name in sorted(loaded.settings.weaken)]
    proxy = loaded.settings.outgoing_proxy
    off += [PROXY_RESOLVES] if proxy is not None and proxy.resolves else []
    for notice in (*off, *(notice for draft in loaded.apps.values() for notice in draft.notices)):
        typer.echo(f"warning: {notice}", err=True)
    console = Console(highlight=False, markup=False, emoji=False)
    for draft in loaded.apps.values():
        console.print(_describe(draft), soft_wrap=True)
    if loaded.login is not None:
        console.print(_describe_login(loaded.login), soft_wrap=True)
    if loaded.tools:
        table(("caller", "app", "scopes"), _tools_rows(loaded))
    if loaded.plugins:
        table(
            ("plugin", "resource"), [(plugin, each) for plugin, names in _of_plugins(loaded).items() for each in names]
        )
    needed = sorted({source.described for source in loaded.sources} - {""})
    if needed:
        console.print(Text("\n  ".join(["\nRead at start:", *needed]) + "\n"), soft_wrap=True)
    _tell_ignored(console, loaded.ignored)
    apps, callers = counted(len(loaded.apps), "app"), counted(len(loaded.tools), "caller")
    console.print(Text(f"{path} is valid: {apps}, {callers}."), soft_wrap=True)


def _tell_ignored(console: Console, ignored: Sequence[IgnoredResource]) -> None:
    if not ignored:
        return
    console.print(Text("Ignored resources of other programs:"))
    for each in ignored[:MOST_SKIPPED]:
        console.print(Text(f"  {each.kind}/{each.name}  {each.api_version}  {each.place}"), soft_wrap=True)
    if len(ignored) > MOST_SKIPPED:
        console.print(Text(f"  and {len(ignored) - MOST_SKIPPED} more, all listed with --json"))
    console.print()


def _describe(draft: AppDraft) -> Text:
    """Describe one app in a few lines. Values to register at the provider are never broken into two lines."""
    app = draft.app
    facts = [("account", _account(app)), *_several(app)]
    if app.credential is not None:
        facts += facts_of(app, app.credential, configured=bool(draft.values))
    else:
        facts.append(("redirect URI", app.redirect.uri) if app.has_callback else ("flow", app.flow))
        facts.append(("scopes", " ".join(app.scopes) or "none"))
    return _titled(app.name, f"{app.provider}, {app.subject_mode}", [*facts, *_habits(app), *_notices(draft)])


def _describe_login(login: LoginDraft) -> Text:
    """Describe the broker's own login: the values to register at the identity provider, and how subjects are read."""
    app = login.draft.app
    facts = [("account", _account(app)), ("redirect URI", app.redirect.uri)]
    if login.operators is not None:
        facts.append(("operators'", _operators_callback(app)))
    return _titled("login", "of the broker's own", facts)


def _titled(title: str, beside: str, facts: Iterable[tuple[str, str]]) -> Text:
    lines = Text(title, style="bold").append(f"  {beside}\n", style="not bold")
    for name, value in facts:
        lines.append(f"  {name:<13}", style="not bold dim").append(f"{value}\n", style="not bold")
    return lines


def _operators_callback(app: App) -> str:
    return replace(app.redirect, callback_path=OPERATORS_CALLBACK_PATH).uri


def _several(app: App) -> Iterator[tuple[str, str]]:
    """Yield how one subject may have several connections of the app."""
    for param in app.connect_params:
        values = f"one of {', '.join(param.one_of)}" if param.one_of else f"within {param.within}" * bool(param.within)
        yield "parameter", f"{param.name} {values}".rstrip()
    if app.several_accounts:
        yield "accounts", "several for a subject"


def _habits(app: App) -> Iterator[tuple[str, str]]:
    """Yield what the app's provider does its own way, by the names of the quirks."""
    if app.redirect.uri_name:
        yield "sent as", f"{app.redirect.uri_name}, the name under which the provider knows the redirect URI"
    if quirks := quirks_of(app.habits):
        yield "quirks", " ".join(quirks)
    if app.habits.token_request_format == "query":
        posts = app.client.auth_method == "client_secret_post"
        what = "refresh tokens and codes" + " and the client's secret" * posts
        yield "careful", f"{what} stand in addresses of the token endpoint, which its provider may log"


def _notices(draft: AppDraft) -> Iterator[tuple[str, str]]:
    """Yield the app's settings that the preset does not confirm. They are no failure, but should be tried."""
    for scope in sorted(NO_RIGHTS & draft.app.scope_set):
        yield "better", f"{scope} under quirks.alwaysScopes: it asks for a refresh token and is no right"
    if draft.unusual_flow:
        yield "not known", f"whether {draft.app.flow} works there"
    if draft.unverified:
        facts = counted(len(draft.unverified), "fact")
        yield "unverified", f"{facts} of its preset (oauthbroker providers show {draft.app.provider})"


def _tools_rows(loaded: Loaded) -> list[tuple[str, str, str]]:
    rows = list[tuple[str, str, str]]()
    for name, auths in loaded.tools.items():
        for auth in auths:
            scopes = loaded.apps[auth.app].app.scopes if auth.scopes is None else auth.scopes
            rows.append((name, auth.app, " ".join(scopes) or "none"))
    return rows


def _of_plugins(loaded: Loaded) -> dict[str, list[str]]:
    """Return the names of the resources that each named plug-in reads."""
    plugins = loaded.settings.plugins
    return {plugin: [f"{each.kind}/{each.name}" for each in loaded.plugins.get(plugin, ())] for plugin in plugins}


def _account(app: App) -> str:
    """Return how the app finds out whose account was connected."""
    if app.flow == "clientCredentials":
        return "the client itself, no person"
    rule = app.owner.global_identity if app.subject_mode == "global" else app.owner.user_identity
    if rule is None:
        return app.owner.binding
    return f"{rule.template} ({rule.source if app.credential is None else 'answer of verify'})"


def _as_json(
    loaded: Loaded | None, problems: list[ConfigProblem], warnings: list[ConfigProblem], here: MissingValues
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "ok": not problems,
        "problems": [problem.to_json() for problem in problems],
        "warnings": [warning.to_json() for warning in warnings],
    }
    if loaded is not None:
        answer["apps"] = [_app_json(draft) for draft in loaded.apps.values()]
        answer["login"] = _login_json(loaded.login)
        answer["callers"] = _callers_json(loaded)
        answer["plugins"] = _of_plugins(loaded)
        answer["needs"] = sorted({source.described for source in loaded.sources} - {""})
        answer["ignored"] = [each.to_json() for each in loaded.ignored]
        answer["notSet"] = [it.described for it in here.unset]
        answer["notKnown"] = [it.described for it in here.unknown]
        answer["proxyResolves"] = bool(loaded.settings.outgoing_proxy and loaded.settings.outgoing_proxy.resolves)
        answer["weaken"] = sorted(loaded.settings.weaken)
    return answer


def _app_json(draft: AppDraft) -> dict[str, Any]:
    app = draft.app
    rules = {"global": app.owner.global_identity, "user": app.owner.user_identity}
    return {
        "kind": app.kind,
        "name": app.name,
        "provider": app.provider,
        "credential": credential_json(app.credential),
        "subjectMode": app.subject_mode,
        "scopes": list(app.scopes),
        "flow": app.flow,
        "redirectUri": app.redirect.uri if app.has_callback else None,
        "redirectUriName": app.redirect.uri_name or None,
        "link": app.redirect.link,
        "connectParams": [param.name for param in app.connect_params],
        "severalAccounts": app.has_accounts,
        "quirks": quirks_of(app.habits),
        "binding": app.owner.binding if app.flow != "clientCredentials" else None,
        "identity": {mode: {"from": it.source, "template": it.template} for mode, it in rules.items() if it},
        "unverified": list(draft.unverified),
        "unusualFlow": draft.unusual_flow,
        "dropped": list(draft.dropped),
        "pkce": draft.app.habits.pkce != "refused",
    }


def _login_json(login: LoginDraft | None) -> dict[str, Any] | None:
    if login is None:
        return None
    rule = login.draft.app.owner.user_identity
    values = {"redirectUri": login.draft.app.redirect.uri, "subject": rule.template if rule else None}
    return values | ({"operatorsRedirectUri": _operators_callback(login.draft.app)} if login.operators else {})


def _callers_json(loaded: Loaded) -> Iterable[dict[str, Any]]:
    return [
        {"name": name, "app": auth.app, "scopes": None if auth.scopes is None else list(auth.scopes)}
        for name, auths in loaded.tools.items()
        for auth in auths
    ]
