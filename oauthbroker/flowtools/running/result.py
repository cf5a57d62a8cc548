"""What a caller gets: a function of the stored run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oauthbroker import AuthorizationRequired
from oauthbroker.flowtools.running.journal import FAILED, RunRecord
from oauthbroker.flowtools.specification.failures import FlowFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The end of a call. `state` is succeeded, failed, escalated (a person has to decide), unknown (an answer was
    lost), waiting (a user has to consent) or running (in another process). `authorization` has the link of a waiting
    run, for its user alone; it is not stored. `errors` are those of FlowFailed."""

    run: str | None
    state: str
    output: Any = field(default=None, repr=False)
    code: str | None = None
    message: str | None = None
    notes: tuple[str, ...] = ()
    authorization: AuthorizationRequired | None = None
    errors: tuple[tuple[str, str], ...] = ()


def refusal(error: FlowFailed) -> RunResult:
    """Return the end of a call that was refused before it became a run."""
    return RunResult(run=None, state=FAILED, code=error.code, message=error.message, errors=error.errors)


def result_of(run: RunRecord) -> RunResult:
    shown = {"output": run.output, "code": run.code, "message": run.message, "notes": run.notes}
    return RunResult(run=run.id, state=run.state, **shown)
