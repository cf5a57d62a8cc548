"""The plots of docs/performance.md. A plot whose figures a run does not have is left out."""

from __future__ import annotations

from bench.plot import Bar, bars, lines
from bench.targets import OURS, Results

PROCESSES = "expired grant, "


def plots(results: Results) -> dict[str, str]:
    """Return the plots by the names of their files."""
    made = {
        "peers.svg": _peers(results),
        "slow-provider.svg": _slow(results),
        "growth.svg": _growth(results),
        "contention.svg": _contention(results),
    }
    return {name: text for name, text in made.items() if text}


def _peers(results: Results) -> str:
    """Draw the rows with the most grants of this run."""
    ours = [each for each in results.get("peers", ()) if each["name"].startswith(OURS) and each["value"] is not None]
    if not ours:
        return ""
    size = ours[-1]["name"].removeprefix(OURS)
    rows = [
        Bar(each["name"].removesuffix(size), each["value"], ours=each["name"].startswith(OURS))
        for each in results["peers"]
        if each["name"].endswith(size) and each["value"] is not None and not each["name"].startswith("yardstick")
    ]
    rows.sort(key=lambda row: row.value)
    return bars(f"A valid token{size} stored", "us", rows, logarithmic=True)


def _slow(results: Results) -> str:
    rows = [
        Bar(each["name"], each["value"], ours=each["name"].endswith("oauthbroker"))
        for each in results.get("slow_provider", ())
        if each["value"] is not None
    ]
    return bars("The provider takes 1 s, the API 0.2 s", "s", rows) if rows else ""


def _growth(results: Results) -> str:
    found: dict[str, dict[float, float]] = {
        what: {
            each["grants"]: each["value"] * scale
            for each in results.get("growth", ())
            if each["name"].startswith(f"{row},")
        }
        for what, row, scale in (
            ("open_broker", "open_broker", 1000),
            ("cold call", "cold call", 1),
            ("warm call", "warm call", 1),
        )
    }
    return lines("Time by grants in the store", "grants", "us", found) if all(map(len, found.values())) else ""


def _contention(results: Results) -> str:
    found: dict[float, float] = {
        int(each["name"].removeprefix(PROCESSES).split()[0]): each["value"]
        for each in results.get("contention", ())
        if each["name"].startswith(PROCESSES) and each["unit"] == "ms"
    }
    name = "Processes that want one expired grant: the last has its token"
    return lines(name, "processes", "ms", {"last": found}) if found else ""
