"""`oauthbroker doctor`: check the installation, and list the users who must consent again. Reads only, also beside a
running broker.

Exit status: 0 healthy, perhaps with warnings; 1 warnings, with --strict; 2 a failure.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from oauthbroker.cli.output.commands_here import name_config, runnable
from oauthbroker.cli.output.json_output import answer
from oauthbroker.cli.output.options import CONFIG, AsJson, ConfigPath
from oauthbroker.cli.output.progress import progress
from oauthbroker.cli.output.tables import counted, shown, table
from oauthbroker.core.clock import SystemClock
from oauthbroker.observability.logging import logger_log

if TYPE_CHECKING:
    from oauthbroker.cli.doctor.checks import Doctor
    from oauthbroker.core.progress import Progress
    from oauthbroker.diagnostics.findings import Finding, Severity

WARNED, FAILED = 1, 2
MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "failure": ("FAILURE", "bold red")}

app = typer.Typer(add_completion=False)


@app.command("doctor")
def doctor_command(
    offline: Annotated[bool, typer.Option("--offline", help="Make no network requests.")] = False,
    forecast: Annotated[
        bool, typer.Option("--forecast", help="Only list who must consent again, when and why.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit status 1 for warnings.")] = False,
    as_json: AsJson = False,
    config: ConfigPath = CONFIG,
) -> None:
    """Check keys, store, disk, clock, providers and grants, and say what to do.

    Works beside a running broker: it writes nothing and takes no lock. Providers are only
    asked whether they answer; no secret is sent.
    """
    from oauthbroker.diagnostics.findings import worst

    with progress(as_json=as_json) as counts:
        doctor, findings = asyncio.run(_examine(config, counts, offline=offline or forecast))
    severity = worst(findings)
    if as_json:
        answer(_as_json(doctor, findings, severity))
    elif forecast:
        _tell_forecast(doctor, findings)
    else:
        _tell(findings, severity)
    if severity == "failure":
        raise typer.Exit(FAILED)
    if severity == "warning" and strict:
        raise typer.Exit(WARNED)


async def _examine(config: Path, counts: Progress, *, offline: bool) -> tuple[Doctor, list[Finding]]:
    from oauthbroker.cli.doctor.checks import Doctor
    from oauthbroker.cli.named_config import bundle_here

    clock = SystemClock()
    named, env = bundle_here(config)
    if named != config:
        name_config(str(named))
    doctor = Doctor(config=named, env=env, clock=clock, log=logger_log(), progress=counts)
    try:
        findings = await doctor.here()
        if not offline:
            findings += await doctor.away()
    finally:
        await doctor.close()
    return doctor, [replace(each, text=runnable(each.text), hint=runnable(each.hint)) for each in findings]


def _tell(findings: list[Finding], severity: Severity) -> None:
    console = Console(highlight=False, markup=False, emoji=False)
    for finding in findings:
        mark, style = MARKS[finding.severity]
        line = Text(f"{mark:<8} ", style=style).append(f"{finding.check:<14} ", style="not bold default")
        about = f"{shown(finding.about)}: " if finding.about else ""
        console.print(line.append(about + shown(finding.text), style="not bold default"), soft_wrap=True)
        if finding.hint and finding.severity != "ok":
            console.print(Text(f"{'':<24}{shown(finding.hint)}", style="dim"), soft_wrap=True)
    count = {each: sum(finding.severity == each for finding in findings) for each in MARKS}
    summary = f"\n{count['ok']} ok, {counted(count['warning'], 'warning')}, {counted(count['failure'], 'failure')}."
    console.print(Text(summary, style=MARKS[severity][1]), soft_wrap=True)


def _tell_forecast(doctor: Doctor, findings: list[Finding]) -> None:
    from oauthbroker.diagnostics.forecast import REASONS

    told = doctor.forecast
    if told.outlooks:
        when = ["when asked for" if it.when is None else f"{it.when:%Y-%m-%d %H:%M}" for it in told.outlooks]
        rows = [
            (at, it.app, " ".join(filter(None, (it.subject, it.account))), REASONS[it.why])
            for at, it in zip(when, told.outlooks, strict=True)
        ]
        table(("when (UTC)", "app", "subject", "why"), rows)
        if told.count > len(rows):
            typer.echo(f"The first {len(rows)} of {told.count}.", err=True)
    else:
        typer.echo("No user, as far as is known.", err=True)
    for finding in findings:
        if finding.severity == "failure" or (finding.check == "forecast" and told.unknown):
            typer.echo(shown(finding.text), err=True)


def _as_json(doctor: Doctor, findings: list[Finding], severity: Severity) -> dict[str, Any]:
    return {
        "ok": severity != "failure",
        "severity": severity,
        "checks": [finding.to_json() for finding in findings],
        "forecast": [outlook.to_json() for outlook in doctor.forecast.outlooks],
        "unknownLifetimes": dict(doctor.forecast.unknown),
    }
