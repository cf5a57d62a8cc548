"""Run `oauthbroker grants revoke` after confirmation: end the grants, tell the providers, show progress and figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from oauthbroker.cli.grants.reading import BLOCK, Chosen
from oauthbroker.cli.output.json_output import ListAnswer, answer
from oauthbroker.cli.output.progress import progress
from oauthbroker.cli.output.tables import counted, facts, shown
from oauthbroker.config.bundle.server_environment import load_here
from oauthbroker.core.clock import to_iso
from oauthbroker.core.refused import CRASHED, STOPPED
from oauthbroker.model.grant_key import GrantKey
from oauthbroker.records.grant_head import GrantHead
from oauthbroker.revocation.bulk import RevocationFigures
from oauthbroker.wiring import open_broker

DONE, LEFT_TO_TELL = 0, 3

OUTCOME_TEXTS = {
    "done": "ended here and at the provider",
    "refused": "ended here; the provider refused to revoke it; check the client, a broker asks again for a week",
    "none": "ended here; this provider cannot be told, so its tokens live there until they expire",
    "shared": "ended here; the provider is told when another grant of the same account ends, which would end too",
    "later": "ended here; the provider did not answer, or this configuration lacks the client of the grant; "
    "a running broker tells it as soon as it can",
}
COUNTED = {
    "done": "the provider knows",
    "none": "the provider cannot be told",
    "shared": "shares another grant's tokens",
    "refused": "the provider refused",
    "later": "left to tell",
}
GO_ON = "A running broker tells the other providers, or type this again."


def summed(chosen: Chosen) -> str:
    """Return `3 grants: 2 of mail, 1 of files.`, with the number of grants that only wait for their provider."""
    by_app = ", ".join(f"{count} of {shown(app)}" for app, count in sorted(chosen.apps.items()))
    ended = len(chosen.ended)
    before = f" {counted(ended, 'grant')} ended before; the provider has still to be told." if ended else ""
    return f"{counted(len(chosen.keys), 'grant')}: {by_app}.{before}"


def tell_nothing(app: str | None, subject: str | None, *, dry_run: bool, as_json: bool) -> None:
    """Print that `--all` left no grant to end. Repeats the typed names, which may be misspelt."""
    named = " and ".join(f"{what} {shown(name)}" for what, name in (("app", app), ("subject", subject)) if name)
    typer.echo(f"No grant{named and ' of '}{named} is left to end. Nothing was changed.", err=True)
    if as_json:
        answer([]) if dry_run else _answer(Chosen(), RevocationFigures(), {})


def tell_gone(gone: GrantHead, *, dry_run: bool, as_json: bool) -> None:
    """Print that the named grant has ended before, and its provider has nothing more to be told."""
    at = to_iso(gone.updated_at)
    typer.echo(f"{_named(gone.key)}: has already ended; its last change was at {at}. Nothing was changed.", err=True)
    if as_json:
        answer([]) if dry_run else _answer(Chosen(), RevocationFigures(), {})


def run(config: Path, chosen: Chosen, patience: float, *, as_json: bool) -> int:
    """End all chosen grants and return the exit status. After Ctrl-C pending revocations stay recorded."""
    figures = RevocationFigures(chosen=len(chosen.keys), over=set(chosen.ended))
    alive = figures.unended
    try:
        with progress(as_json=as_json) as show:

            def on_change(now: RevocationFigures) -> None:
                if now.outcomes:
                    show("grants told to their provider", len(now.outcomes), now.chosen - len(now.failed))
                else:
                    show("grants ended here", now.ended, alive)

            asyncio.run(_end(config, chosen, patience, figures, on_change))
        stopped = False
    except KeyboardInterrupt:
        stopped = True
    pages = _credential_pages(config)
    if as_json:
        _answer(chosen, figures, pages)
    else:
        _tell(chosen, figures, pages)
    return STOPPED if stopped else _status(figures)


async def _end(
    config: Path,
    chosen: Chosen,
    patience: float,
    figures: RevocationFigures,
    on_change: Callable[[RevocationFigures], None],
) -> None:
    """End the grants with the values of their apps only, because another app's secret may be missing."""
    async with open_broker(config, background=False, only=set(chosen.apps)) as broker:
        await broker.grants.revoke_each(chosen.keys, figures, patience=patience, on_change=on_change)


def _credential_pages(config: Path) -> dict[str, tuple[str, ...]]:
    """Return the pages where people end the credentials of each CredentialApp."""
    found = {name: draft.app.credential for name, draft in load_here(config).apps.items()}
    return {name: each.places for name, each in found.items() if each is not None}


def _tell(chosen: Chosen, figures: RevocationFigures, pages: Mapping[str, tuple[str, ...]]) -> None:
    in_a_sentence = len(chosen.keys) == 1 and bool(figures.outcomes)
    if in_a_sentence:
        [(key, outcome)] = figures.outcomes.items()
        text = OUTCOME_TEXTS[outcome] if key.app not in pages else "ended here"
        typer.echo(f"{_named(key)}: {text}")
    else:
        rows = [("ended here", figures.ended), *((text, _count(figures, outcome)) for outcome, text in COUNTED.items())]
        rows += [("NOT ended", figures.unended)] if figures.unended else []
        facts((text, str(count)) for text, count in rows)
    for name in sorted(chosen.apps.keys() & pages.keys()):
        where = ", ".join(pages[name]) or "in the settings of the account"
        typer.echo(f"{shown(name)}: the credential still works at the provider until it is ended there: {where}")
    for key, code in figures.failed.items():
        typer.echo(f"{_named(key)}: NOT ended: {code.value}; type this again.", err=True)
    if figures.unended:
        again = "grant is" if figures.unended == 1 else "grants are"
        typer.echo(f"{figures.unended:,} {again} not ended: type this again.", err=True)
    elif figures.left and not in_a_sentence:
        typer.echo(GO_ON, err=True)


def _named(key: GrantKey) -> str:
    return " ".join(shown(part) for part in key if part)


def _count(figures: RevocationFigures, outcome: str) -> int:
    """Return how many grants have this result. Grants that a stopped run did not reach count as `later`."""
    if outcome != "later":
        return sum(each == outcome for each in figures.outcomes.values())
    return figures.left - _count(figures, "refused")


def _answer(chosen: Chosen, figures: RevocationFigures, pages: Mapping[str, tuple[str, ...]]) -> None:
    counts = {outcome: _count(figures, outcome) for outcome in COUNTED}
    numbers = {
        "chosen": figures.chosen,
        "ended": figures.ended,
        "notEnded": figures.unended,
        "failed": len(figures.failed),
        "provider": counts,
    }
    grants = ListAnswer(numbers, "grants")
    for start in range(0, len(chosen.keys), BLOCK):
        grants.add([_one_as_json(key, figures, pages.get(key.app)) for key in chosen.keys[start : start + BLOCK]])
    grants.end()


def _one_as_json(key: GrantKey, figures: RevocationFigures, pages: Sequence[str] | None) -> dict[str, Any]:
    code = figures.failed.get(key)
    why = "" if code is None and key in figures.over else "stopped" if code is None else code.value
    failed = {"failed": why} if why else {}
    provider: dict[str, Any] = {} if failed else {"provider": figures.outcomes.get(key, "later")}
    provider |= {"endAt": list(pages)} if pages else {}
    return {"grantId": key.id, "app": key.app, "subject": key.subject, **provider, **failed}


def _status(figures: RevocationFigures) -> int:
    if figures.failed:
        return CRASHED
    return LEFT_TO_TELL if figures.left else DONE
