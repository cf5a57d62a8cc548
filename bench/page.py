"""docs/performance.md and the pages beside it, written from one run: python -m bench.page [results.json].

Without a file it takes the newest full run in bench/results, or else the figures that are committed. A run is kept as
docs/performance/results.json, its plots lie beside it, and a test refuses pages that differ from them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from bench.figures import Figure
from bench.operator_page import tables
from bench.page_plots import plots
from bench.page_tried import MEASURED, ON_FILES, ON_POSTGRES
from bench.page_words import (
    ALL,
    ALL_SERVED,
    INTRO,
    LIMITED_BY,
    LIMITS,
    OPERATOR,
    PARALLEL,
    PEERS,
    QUICK,
    REPEAT,
    SLOW,
    TARGETS,
)
from bench.targets import OURS, POST, TABLE, TCP, UNIX, Results, Target, assessed, find

ROOT = Path(__file__).parents[1]
PAGE, FOLDER = ROOT / "docs" / "performance.md", ROOT / "docs" / "performance"
TARGET_PAGE, FIGURE_PAGE = PAGE.with_name("performance-targets.md"), PAGE.with_name("performance-figures.md")
SERVED_PAGE = PAGE.with_name("performance-served.md")
OPERATOR_PAGE = PAGE.with_name("performance-operators.md")
KEPT = FOLDER / "results.json"
BEFORE = FOLDER / "before.json"  # the earlier version, in the same hour on the same machine
Run = dict[str, Any]
COSTS = (
    ("a warm token call in the process", "token_call", f"warm: {OURS}"),
    ("a cold token call: the record is read and opened", "token_call", f"cold: {OURS}"),
    (f"`{POST}` over a Unix socket", "api", f"{POST}, {UNIX}: time"),
    (f"CPU of `{POST}`, 16 connections over TCP", "api", f"{POST}, {TCP}: CPU"),
    ("a whole refresh, the provider on this machine", "refresh", "a whole refresh, provider on this machine"),
    ("an entry of the audit log", "audit", "audit: an entry"),
    ("one event: lease and acknowledge", "events", "lease and ack, 0 others wait"),
    ("opening a broker over 1,000 grants", "growth", "open_broker, 1,000 grants"),
)
SERVED = {"api", "proxy", "scaling"}  # benches of a server
OWN_PARTS = {"peers", "slow_provider", "growth", "million", "contention", "workers"}
MISSING = "not measured"
MILLION = "million"  # whose targets stand beside its figures
WIDTH = 118


def page(run: Run) -> str:
    """Return the page of one run: costs, other packages, and what grows."""
    results: Results = run["results"]
    shown = plots(results)
    parts = [INTRO, *_machine(run), "", "## The cost of a call", "", *_table(_costs(results)), ""]
    for title, words, bench, plot in (
        ("Beside other packages", PEERS, "peers", "peers.svg"),
        ("A slow provider", SLOW, "slow_provider", "slow-provider.svg"),
        ("More grants", "", "growth", "growth.svg"),
        ("Many processes", PARALLEL, "contention", "contention.svg"),
        ("One worker and two", "", "workers", ""),
    ):
        picture = [f"![{title}](performance/{plot})", ""] if plot in shown else []
        parts += [f"## {title}", "", *([words, ""] if words else []), *picture, *_table(_figures(results, bench)), ""]
    parts += ["## When one machine is no longer enough", "", *_limits(results), "", LIMITS, "", REPEAT]
    return "\n".join(parts).rstrip() + "\n"


def target_page(run: Run) -> str:
    """Return the page of the targets, of what limits those that are not met, and of the attempts."""
    results: Results = run["results"]
    before: Run = json.loads(BEFORE.read_text("utf-8"))
    intro = TARGETS.format(before=before["commit"], day=before["at"][:10])
    rows = [each for each in TABLE if each.bench != MILLION]
    parts = [intro, "", *_table(_targets(rows, results, before["results"], assess=not run["quick"])), ""]
    parts += [] if run["quick"] else [*_limited(results), *_listed("Attempts on files, with their gains:", ON_FILES)]
    parts += _listed(MEASURED, ON_POSTGRES)
    return "\n".join(parts).rstrip() + "\n"


def figure_page(run: Run) -> str:
    """Return the page of all figures that the other pages have no table of."""
    return _figures_of(run, ALL, run["results"].keys() - OWN_PARTS - SERVED)


def served_page(run: Run) -> str:
    """Return the page of the figures of servers."""
    return _figures_of(run, ALL_SERVED, SERVED)


def _figures_of(run: Run, intro: str, benches: Collection[str]) -> str:
    results: Results = run["results"]
    parts = [intro, ""]
    for bench in (name for name in results if name in benches):
        parts += [f"## `{bench}`", "", *_table(_figures(results, bench)), ""]
    return "\n".join(parts).rstrip() + "\n"


def operator_page(run: Run) -> str:
    """Return the page of lists and commands over many grants."""
    results: Results = run["results"]
    parts = [OPERATOR, ""]
    for store, rows in tables(results.get(MILLION, ())):
        parts += [f"## {store}", "", *_table(rows), ""]
    targets = [each for each in TABLE if each.bench == MILLION]
    parts += ["## Targets", "", *_table(_targets(targets, results, {}, assess=not run["quick"])), ""]
    return "\n".join(parts).rstrip() + "\n"


def _machine(run: Run) -> Iterator[str]:
    about = run["machine"]
    yield f"Measured on {run['at'][:10]}: {about['processor']}, {about['cores']} cores, {about['memoryGiB']} GiB,"
    yield f"{about['system']}, Python {about['python']}. The machine's load before the run was {run['load']:g}."
    if run["quick"]:
        yield from ("", QUICK)


def _costs(results: Results) -> Iterator[tuple[str, ...]]:
    yield "call", "time", "half of the rounds lie between"
    for call, bench, name in COSTS:
        found = find(results, bench, name)
        yield call, value_of(found), spread_of(found)


def _targets(rows: Iterable[Target], results: Results, before: Results, *, assess: bool) -> Iterator[tuple[str, ...]]:
    yield "call", "ours", "beside it", "", "before", "now", "half of the rounds", "target", ""
    for each in rows:
        now, other = each.now(results), find(results, each.bench, each.beside) if each.beside else None
        assessment = (
            "" if now is None else "not assessed" if not assess else "met" if each.met(now[0]) else "**not met**"
        )
        unit = f" {each.unit}" if each.unit else ""
        shown = f"{now[0]:,.7g}{unit}" if now else MISSING
        earlier = each.now(before)
        then = f"**{earlier[0]:,.7g}{unit}**" if earlier else each.before
        between = f"{now[1]:,g} to {now[2]:,g}" if now and now[1] < now[2] else ""
        beside = (_short(each.beside), value_of(other)) if each.beside else ("", "")
        ours = value_of(find(results, each.bench, each.figure))
        yield each.call, ours, *beside, then, shown, between, each.goal, assessment


def _limited(results: Results) -> list[str]:
    """Return what keeps calls from their targets, where it is known."""
    missed = [each.call for each, now in assessed(results) if now is not None and not each.met(now[0])]
    known = {call: LIMITED_BY[call] for call in missed if call in LIMITED_BY}
    return _listed("What limits calls that do not meet their target:", known)


def _listed(title: str, texts: Mapping[str, str]) -> list[str]:
    lines = (
        fill(f"- **{call}**: {text}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
        for call, text in texts.items()
    )
    return [title, "", *lines, ""] if texts else []


def _short(name: str) -> str:
    """Return a row's name without the kind that it starts with, such as `warm: `."""
    kind, _, rest = name.partition(": ")
    return rest if kind in {"warm", "cold", "audit", "write", "together"} else name


def _figures(results: Results, bench: str) -> Iterator[tuple[str, ...]]:
    yield "row", "median", "half of the rounds lie between", "rounds", "ratio to"
    for each in results.get(bench, ()):
        ratios = "<br>".join(f"{found['ratio']:,g} of {name}" for name, found in each.get("beside", {}).items())
        packages = ", ".join(f"{name} {version}" for name, version in each.get("packages", {}).items())
        row = f"{each['name']} ({packages})" if packages else each["name"]
        yield row, value_of(each), spread_of(each), str(each.get("rounds", "")), ratios


def _limits(results: Results) -> Iterator[str]:
    """Yield what the figures of this machine say about the size of an installation."""
    one, two = (find(results, "workers", f"serve, {workers} workers") for workers in (1, 2))
    writes = find(results, "store", "together: store.put")
    if one and two:
        yield f"- **Calls.** One worker answers {one['value']:,g} requests/s, two answer {two['value']:,g}; the callers"
        yield "  share the cores with them. Embedded calls need no server."
    if writes:
        each = writes["value"] / 2
        yield f"- **Refreshes.** The store takes {writes['value']:,g} durable writes a second, and a refresh needs two:"
        yield f"  some {each:,.0f} refreshes/s. With tokens that last an hour, that is {each * 3600:,.0f} grants in"
        yield "  constant use."
    grants = [each for each in results.get("growth", ()) if each["name"].startswith("warm call")]
    if grants:
        most = max(each["grants"] for each in grants)
        yield f"- **Grants.** Measured up to {most:,}; [more grants](#more-grants) shows which calls feel it."


def value_of(found: Figure | None) -> str:
    if found is None:
        return MISSING
    return f"{MISSING}: {found['failed']}" if found["value"] is None else f"{found['value']:,} {found['unit']}".rstrip()


def spread_of(found: Figure | None) -> str:
    if found is None or found["value"] is None or "low" not in found or found.get("rounds", 1) < 2:
        return ""
    return f"{found['low']:,} to {found['high']:,}"


def _table(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
        if number == 0:
            yield "|" + "---|" * len(row)


def files(run: Run) -> dict[Path, str]:
    """Return every file that the figures determine, and its text."""
    drawn = {FOLDER / name: text for name, text in plots(run["results"]).items()}
    return {
        PAGE: page(run),
        TARGET_PAGE: target_page(run),
        FIGURE_PAGE: figure_page(run),
        SERVED_PAGE: served_page(run),
        OPERATOR_PAGE: operator_page(run),
        KEPT: json.dumps(run, indent=1) + "\n",
        BEFORE: BEFORE.read_text("utf-8"),
        **drawn,
    }


def newest() -> Path:
    """Return the newest full run, or the committed one."""
    for path in sorted((ROOT / "bench" / "results").glob("*.json"), reverse=True):
        run = json.loads(path.read_text("utf-8"))
        if not run.get("quick", True) and {each.bench for each in TABLE} <= run["results"].keys():
            return path
    return KEPT


def main(words: list[str]) -> None:
    source = Path(words[0]) if words else newest()
    run = json.loads(source.read_text("utf-8"))
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.svg"):
        old.unlink()
    for path, text in files(run).items():
        path.write_text(text, "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} and its pages of figures from {source}")


if __name__ == "__main__":
    main(sys.argv[1:])
