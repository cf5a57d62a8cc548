"""The findings about grants: which of them have a problem, and what to do. Pure; takes grants one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from oauthbroker.core.dataclasses import dataclass, field
from oauthbroker.diagnostics.findings import NAMED, Finding, counted
from oauthbroker.diagnostics.forecast import AppFacts
from oauthbroker.records.grant_view import GrantView
from oauthbroker.records.refresh_state import Ended

Apps = Mapping[str, AppFacts]


class Problem(NamedTuple):
    """A kind of problem: its words, what to do next, and which grants have it."""

    which: str
    hint: str
    fits: Callable[[GrantView, Apps], bool]


def _has(ended: Ended, words: str, hint: str = "The people are asked at the next call.") -> Problem:
    return Problem(f"that {words}", hint, lambda grant, _: grant.ended == ended and not grant.revoked)


def _may_tell(grant: GrantView, apps: Apps) -> list[bool]:
    """Return for each client whose tokens are still to be revoked whether the app is configured with it, as far as that
    is at hand."""
    app = apps.get(grant.app)
    clients = grant.clients_to_tell or (grant.registration,)
    return [app is not None and app.registration in {"", client} for client in clients]


def _is_tried_again(grant: GrantView, _: Apps) -> bool:
    return not (grant.revoked or grant.ended or grant.given_up) and bool(grant.lost or grant.refused_at)


PROBLEMS = (
    _has("dead", "the provider refuses to refresh"),
    _has("uncertain", "could not be refreshed after an answer was lost"),
    _has(
        "quarantined",
        "are no longer used, because a refresh returned the token of another account",
        "Ask the provider what happened.",
    ),
    Problem(
        "that the provider refuses for long, in words of its own",
        "The people are asked at the next call. The refresh token is kept, and tried again once an hour.",
        lambda grant, _: grant.given_up and not grant.revoked,
    ),
    Problem(
        "whose refreshes fail, and are tried again",
        "Look for `refreshes` in the broker's log, and at the provider.",
        _is_tried_again,
    ),
    Problem(
        "whose newest token had ended when it came, so that no caller gets one",
        "Tell the provider; `quirks.lifetimeForm: none` takes its 0 for no end.",
        lambda grant, _: grant.gives_no_time and not grant.revoked,
    ),
    Problem(
        "with tokens that ended here and whose provider does not know yet",
        "A running broker tells it; `oauthbroker grants revoke --all` does so at once.",
        lambda grant, apps: grant.revocation_pending and any(_may_tell(grant, apps)),
    ),
    Problem(
        "with tokens that ended here and whose provider this configuration cannot tell",
        "Configure the app again with the client id that they were made with: a week after their end the tokens are "
        "erased untold.",
        lambda grant, apps: grant.revocation_pending and not all(_may_tell(grant, apps)),
    ),
    Problem(
        "of apps that are not configured",
        "Configure them again, or end them with `oauthbroker grants revoke --all --app NAME`.",
        lambda grant, apps: not grant.revoked and grant.app not in apps,
    ),
)


@dataclass(slots=True)
class _Tally:
    """How many grants of each app have a problem, and which of them changed first."""

    apps: Counter[str] = field(default_factory=Counter)
    first: list[tuple[datetime, str]] = field(default_factory=list)

    def add(self, grant: GrantView) -> None:
        self.apps[grant.app] += 1
        self.first = sorted([*self.first, (grant.updated_at, grant.id)])[:NAMED]

    def finding(self, problem: Problem) -> Finding:
        count = self.apps.total()
        apps = ", ".join(f"{number} of {app}" for app, number in sorted(self.apps.items()))
        first = ", ".join(grant_id.removeprefix("sha256:")[:12] for _, grant_id in self.first)
        more = f" and {count - NAMED} more" if count > NAMED else ""
        text = f"{counted(count, 'grant')} {problem.which} ({apps}): {first}{more}."
        return Finding("grants", "warning", text, hint=problem.hint)


class GrantFindings:
    """The problems of the grants that were added, one finding a kind."""

    def __init__(self, apps: Apps) -> None:
        self._apps, self._alive, self._revoked = apps, 0, 0
        self._tallies: dict[Problem, _Tally] = {problem: _Tally() for problem in PROBLEMS}
        self._unlisted, self._unusual = dict[str, Counter[str]](), dict[str, set[str]]()

    @property
    def tried_again(self) -> list[str]:
        """Return the apps that have grants whose refreshes fail, and are tried again."""
        return sorted(
            {app for problem, it in self._tallies.items() if problem.fits is _is_tried_again for app in it.apps}
        )

    def add(self, grant: GrantView) -> None:
        for problem, tally in self._tallies.items():
            if problem.fits(grant, self._apps):
                tally.add(grant)
        if grant.revoked:
            self._revoked += 1
            return
        self._alive += 1
        if grant.unlisted:
            self._unlisted.setdefault(grant.app, Counter()).update(grant.unlisted)
        if grant.unusual:
            self._unusual.setdefault(grant.app, set()).update(grant.unusual)

    def findings(self) -> list[Finding]:
        found = [tally.finding(problem) for problem, tally in self._tallies.items() if tally.apps]
        found += [_of_unlisted(app, scopes) for app, scopes in sorted(self._unlisted.items())]
        found += [_of_unusual(app, kinds) for app, kinds in sorted(self._unusual.items())]
        return [*found, Finding("grants", "ok", f"{self._alive} alive, {self._revoked} revoked.")]


def _of_unlisted(app: str, unlisted: Counter[str]) -> Finding:
    """Report scopes that were asked for at several consents in a row and never granted."""
    hint = (
        "See whether the client may ask for it there. If the provider grants it and does not say so, name it in "
        "`quirks.unlistedScopes`."
    )
    scopes = ", ".join(f"{scope} ({counted(count, 'grant')})" for scope, count in sorted(unlisted.items())[:NAMED])
    text = f"The provider does not list {scopes}, consent after consent."
    return Finding("grants", "warning", text, hint=hint, about=app)


def _of_unusual(app: str, unusual: set[str]) -> Finding:
    """Report answers that a stricter client would have refused."""
    hint = "Tokens are kept. Tell the provider; for `lifetime` see `quirks.lifetimeForm` and `lifetimeField`."
    text = f"The provider's answers are unusual: {', '.join(sorted(unusual))}."
    return Finding("grants", "warning", text, hint=hint, about=app)
