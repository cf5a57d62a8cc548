"""Transactions that forget one thing. Each must do something else than the model in a replay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from oauthbroker.records import Grant, RefreshState, overlapping_refreshes
from oauthbroker.records.refresh_state import Intent
from oauthbroker.refresh.job import RefreshJob
from oauthbroker.refresh.retry_store import RetryStore
from oauthbroker.refresh.transaction import RefreshTransaction
from oauthbroker.refresh.writeback import Refreshed, Writeback
from oauthbroker.repository import newest_seen
from oauthbroker.repository.newest_seen import NewestSeen
from oauthbroker.repository.repository import Repository

PEOPLE, OUTAGE, FROZEN, LOST, LOST_PEOPLE, LOST_KILL = (
    "people and bad answers", "an outage and a kill", "a frozen host", "lost writes", "lost writes and people",
    "lost writes and a kill",
)  # fmt: skip


class Mutant(NamedTuple):
    """`change` replaces what `owner` has under `name`; it gets the original. `bounds`: where it is noticed."""

    bounds: str
    owner: Any
    name: str
    change: Callable[[Any], Any]


async def _nothing(*_: Any, **__: Any) -> None:
    return None


async def _no(*_: Any) -> bool:
    return False


def _early(commit: Any) -> Any:
    async def answered_first(
        self: Any, job: Any, in_flight: Any, begun: Any, redeemed: Any, reservation: Any
    ) -> Refreshed:
        in_flight.finish(Refreshed(self._with(redeemed, begun)))
        stored: Refreshed = await commit(self, job, in_flight, begun, redeemed, reservation)
        return stored

    return answered_first


def _once(_: Any) -> Any:
    async def keep(self: Any, after: Grant, reservation: Any, write: Any, meanwhile: Any) -> Any:
        try:
            return await write(reservation), None
        except Exception as error:  # noqa: BLE001
            return after, getattr(error, "code", None)

    return keep


def _only_the_lease(_: Any) -> Any:
    async def may_send(self: Any, job: Any, begun: Any, lease: Any, secret: Any) -> bool:
        holds: bool = await lease.holds()
        return holds

    return may_send


def _only_the_grant(_: Any) -> Any:
    async def may_send(self: Any, job: Any, begun: Any, lease: Any, secret: Any) -> bool:
        versioned = await self._newest(job)
        return (
            versioned is not None
            and overlapping_refreshes.is_attempted_as(versioned.record, begun)
            and secret in versioned.record.refresh_tokens
        )

    return may_send


def _only_the_intent(_: Any) -> Any:
    async def may_send(self: Any, job: Any, begun: Any, lease: Any, secret: Any) -> bool:
        versioned = await self._newest(job)
        return (
            versioned is not None
            and overlapping_refreshes.is_attempted_as(versioned.record, begun)
            and await lease.holds()
        )

    return may_send


def _without_spare(after: Any) -> Any:
    return lambda self, code, *, spare, **more: after(self, code, spare=None, **more)


def _tokens_of_the_ended(_: Any) -> Any:
    def tokens(self: Grant) -> tuple[Any, ...]:
        token = self.token
        return (
            ()
            if token is None or self.revoked
            else tuple(filter(None, (self.refresh_state.spare, token.refresh_token)))
        )

    return property(tokens)


def _over_everything(_: Any) -> Any:
    return lambda newest, _, after: replace(newest, token=after.token, refresh_state=after.refresh_state)


def _also_revoked(_: Any) -> Any:
    return lambda newest, begun: overlapping_refreshes.is_attempted_as(newest, begun) or newest.token == begun.token


def _uncounted(_: Any) -> Any:
    return lambda self, attempt, at: replace(self, intent=Intent(attempt, at))


MUTANTS: Final[Mapping[str, Mutant]] = MappingProxyType(
    {
        "what another has done meanwhile is not looked at": Mutant(
            OUTAGE, RefreshJob, "settled_by", lambda _: lambda *_: False
        ),
        "the lease is not asked": Mutant(FROZEN, RefreshTransaction, "_may_send", _only_the_grant),
        "the grant is not read before sending": Mutant(FROZEN, RefreshTransaction, "_may_send", _only_the_lease),
        "the tokens are not compared before sending": Mutant(FROZEN, RefreshTransaction, "_may_send", _only_the_intent),
        "an answer is written over everything": Mutant(
            PEOPLE, overlapping_refreshes, "awaits_answer_of", lambda _: lambda *_: True
        ),
        "an answer without its intent is dropped": Mutant(
            FROZEN, overlapping_refreshes, "awaits_answer_of", lambda _: overlapping_refreshes.is_attempted_as
        ),
        "a revoked grant is refreshed": Mutant(PEOPLE, overlapping_refreshes, "awaits_answer_of", _also_revoked),
        "a caller is answered before the store": Mutant(OUTAGE, Writeback, "commit", _early),
        "a refusal is written over everything": Mutant(
            PEOPLE, overlapping_refreshes, "after_refusal", _over_everything
        ),
        "the spare of a refused answer is lost": Mutant(PEOPLE, RefreshState, "after", _without_spare),
        "a dead refresh token is tried again": Mutant(PEOPLE, Grant, "refresh_tokens", _tokens_of_the_ended),
        "the intent of a lost answer is removed": Mutant(
            PEOPLE, RefreshState, "lost", lambda _: lambda self, _at: replace(self, intent=None)
        ),
        "lost answers are not counted": Mutant(PEOPLE, RefreshState, "begun", _uncounted),
        "an intent is not withdrawn": Mutant(FROZEN, Writeback, "withdraw", lambda _: _nothing),
        "a holder gives up": Mutant(OUTAGE, RetryStore, "keep_grant", _once),
        "a newer record is forgotten": Mutant(LOST, NewestSeen, "newer_than", lambda _: lambda *_: None),
        "a remembered record is written over a newer one": Mutant(
            LOST_PEOPLE,
            newest_seen,
            "_is_ancestor",
            lambda _: lambda found, seen: found.record != seen.versioned.record,
        ),
        "a record that may be older is trusted": Mutant(LOST_KILL, Repository, "may_lack_newer", lambda _: _no),
    }
)
