"""The laws of a world. They are checked with each statement, request, answer, event and audit entry."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from oauthbroker.audit import AuditEntry, Connected, GrantEnded, TokenIssued, TokensDropped
from oauthbroker.model.token_results import AuthorizationRequired, Ready, TokenResult
from oauthbroker.records import AgentEvent, AuthSession, Grant
from oauthbroker.repository.repository import DEGRADED_SECONDS, FEED_SECONDS, KINDS
from oauthbroker.store.keys.keyring import Keyring
from tests.world.histories import Operation, is_possible
from tests.world.keys import kek
from tests.world.loop import EPOCH, Process, current_process
from tests.world.provider import Family
from tests.world.tables import Place
from tests.world.troubles import FAILOVER_GRACE, Troubles

if TYPE_CHECKING:
    from tests.world.world import World

Pair = tuple[str, str]  # app, and the provider's account of a person


@dataclass(eq=False)
class Consent:
    """A consent of a person: how far it has come, and whether a revocation of it has begun and was acknowledged."""

    pair: Pair
    session: str
    family: Family | None = None
    done_at: float = inf
    ending: bool = False
    ended_at: float = inf
    ended_by: Process | None = None
    erased: bool = False


@dataclass(eq=False)
class Conversation:
    """The events of one address, as their consumers have seen them."""

    seen: dict[str, AgentEvent] = field(default_factory=dict)
    acked: dict[str, float] = field(default_factory=dict)


class Laws:
    """The laws of one world. `broken` has what did not hold, `asked` each law that was looked at."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.broken, self.asked = list[str](), set[str]()
        self.troubles = Troubles(world.loop.time)
        self.consents = list[Consent]()
        self.endings = list[tuple[list[Pair], bool]]()  # that have no answer, and whether they erase
        self.grants = dict[Place, Grant]()  # as they were last stored
        self._families = list[Family]()  # by their first write: of two consents at once either may be last
        self.sessions = dict[Place, AuthSession]()
        self._events_stored = dict[str, float]()  # when an event was first in an outbox
        self._rings = dict[bytes, Keyring]()
        self._bodies = dict[tuple[bytes, Place, bytes], bytes]()  # of records that were opened, by keyring and place
        self._connected, self._unrevoked, self.grants_ended = set[str](), set[str](), set[str]()
        self._issued, self._ready = Counter[Process](), Counter[Process]()
        self._given = defaultdict[tuple[Process, Pair], list[tuple[float, int, int]]](list)
        self.conversations = defaultdict[tuple[str, str, str], Conversation](Conversation)
        self.histories = defaultdict[Pair, list[Operation]](list)

    def check(self, holds: object, law: str, *facts: object) -> None:
        self.asked.add(law)
        if not holds:
            self.broken.append(f"{law}: {' '.join(map(str, facts))}")
            self._world.tell("BROKEN", law, *facts)

    @property
    def _now(self) -> float:
        return self._world.loop.time()

    # audit

    def audited(self, entry: AuditEntry) -> None:
        match entry:
            case TokenIssued():
                self._issued[current_process()] += 1
            case Connected(session=session):
                self._connected.add(session)
            case GrantEnded(grant=grant):
                self.grants_ended.add(grant)
            case TokensDropped(session=session, revoked=False):
                self._unrevoked.add(session)  # its one request to the provider has failed, as the entry says
        self._world.tell("audit", current_process(), type(entry).__name__)

    # the store

    def opened(self, place: Place, generation: int, record: bytes) -> bytes:
        document = (self._world.database.tables.keyring or (b"", 0))[0]
        if document not in self._rings:
            self._rings[document] = Keyring.opened(document, kek())
        known = document, place, record
        if known not in self._bodies:
            self._bodies[known] = self._rings[document].unseal(place[0], place[1].hex(), record, kinds=KINDS)[1]
        return self._bodies[known]

    def stored(self, place: Place) -> None:
        """Look at a grant or a session that was written."""
        row = self._world.database.tables.entry.get(place)
        if place[0] not in {"grants", "sessions"} or row is None:
            return
        body = self.opened(place, row.generation, row.record)
        if place[0] == "sessions":
            self.sessions[place] = session = AuthSession.from_plaintext(body)
            self._note_events(*filter(None, [session.outbox]))
        else:
            self._check_stored(place, Grant.from_plaintext(body))

    def taken_over(self, behind: float) -> None:
        """Look at what a standby has that was behind since then: nothing of that time has to be left."""
        self.troubles.failovers.append((behind, self._now))
        self.grants.clear()
        self.sessions.clear()
        for place, row in self._world.database.tables.entry.items():
            if place[0] == "grants":
                self.grants[place] = Grant.from_plaintext(self.opened(place, row.generation, row.record))
            elif place[0] == "sessions":
                self.sessions[place] = AuthSession.from_plaintext(self.opened(place, row.generation, row.record))

    def _note_events(self, *outbox: AgentEvent) -> None:
        for event in outbox:
            self._events_stored.setdefault(event.id, self._now)

    def _check_stored(self, place: Place, after: Grant) -> None:
        self._note_events(*after.outbox)
        before, self.grants[place] = self.grants.get(place), after
        who, same = f"{after.app} {after.subject}", before is not None and before.consent == after.consent
        if not same and not after.revoked:
            self._families.append(self._token(after)[0])
            is_entered = after.auth_session_id is None or after.auth_session_id in self._connected
            self.check(is_entered, "each audit entry is written before its act", who, "connected")
        if before is None or not same:
            return
        self.check(after.revoked or not before.revoked, "a revocation stays", who)
        if not after.revoked:
            numbers = [self._numbers(each) for each in (before, after)]
            self.check(numbers[0] <= numbers[1], "no older token is written over a newer one", who, *numbers)
        if after.refresh_state.ended != before.refresh_state.ended and after.refresh_state.ended:
            self._check_end(after, who)

    def _numbers(self, grant: Grant) -> int:
        """Return the number of the newest refresh token that a grant has."""
        kept = (grant.refresh_state.spare, grant.token.refresh_token if grant.token is not None else None)
        return max((self._world.provider.family_of(each.reveal())[1] for each in kept if each is not None), default=0)

    def _token(self, grant: Grant) -> tuple[Family, int]:
        assert grant.token is not None and grant.token.refresh_token is not None  # noqa: PT018
        return self._world.provider.family_of(grant.token.refresh_token.reveal())

    def _check_end(self, grant: Grant, who: str) -> None:
        family, number = self._token(grant)
        said = not family.alive or number < family.newest
        is_excused = grant.refresh_state.ended == "dead" or self.troubles.may_lose(family, number)
        for again in family.reused:  # it has ended the newer ones, too
            is_excused = is_excused or self.troubles.may_lose(family, again, again + 1)
        is_excused = is_excused or self.troubles.may_forget_answer(family)  # then the store had spent tokens
        law = "a grant is given up only after a lost answer or the provider's plain word"
        self.check(said and is_excused, law, who, grant.refresh_state.ended, family.reused)

    # what the provider sees

    def spent_again(self, family: Family, number: int, process: Process) -> None:
        """Look at a spent refresh token that comes again."""
        stored = any(self._holds(grant, family, number + 1) for grant in self.grants.values())
        excused = self.troubles.has_thawed(process) or (not stored and self.troubles.may_lose(family, number))
        law = "a spent refresh token is sent again only if its answer was lost"
        self.check(excused, law, process, family.app, family.account, number, "stored" if stored else "not stored")

    def code_again(self, code: str, process: Process) -> None:
        self.check(False, "a code is sent once", process, code)

    def _holds(self, grant: Grant, family: Family, number: int) -> bool:
        found = [self._world.provider.family_of(each.reveal()) for each in grant.refresh_tokens]
        return any(each is family and its_number >= number for each, its_number in found)

    # what callers get

    def answered(self, pair: Pair, process: Process, asked: float, result: TokenResult) -> None:
        if isinstance(result, Ready):
            self._check_token(pair, process, asked, result)
        elif isinstance(result, AuthorizationRequired):
            self._check_reason(pair, asked, result.reason)
            if result.reason in {"noGrant", "revoked"}:
                self._read(pair, None, asked - self._bound(is_degraded=False))

    def _bound(self, *, is_degraded: bool) -> float:
        """Return how old a version may be that a caller sees, in seconds: docs/scaling.md promises it."""
        if self._world.consistency == "available" and is_degraded:
            return DEGRADED_SECONDS
        return 0.0 if self._world.consistency == "strict" else FEED_SECONDS

    def _read(self, pair: Pair, family: int | None, begin: float) -> None:
        self.histories[pair].append(Operation(True, family, begin, self._now))

    def writes(self, pair: Pair, code: str = "") -> Operation:
        """Note the begin of a consent with this code, or of a revocation; who began it notes the end."""
        operation = Operation(False, None, self._now, code=code)
        self.histories[pair].append(operation)
        return operation

    def check_histories(self) -> None:
        """Check what callers saw of each grant, unless a standby lacks a change of it."""
        families = {each.code: each.number for each in self._world.provider.families}
        for pair, history in self.histories.items():
            writes = [each for each in history if not each.reads]
            for write in writes:
                write.family = families.get(write.code)
            done = [each for each in history if not each.code or each.family is not None]
            is_lost = any(self.troubles.may_forget(each.begin, each.end) for each in writes)
            self.check(is_lost or is_possible(done), "the calls on a grant have an order", pair, done)

    def _check_token(self, pair: Pair, process: Process, asked: float, ready: Ready) -> None:
        token = ready.access_token.reveal()
        family, number = self._world.provider.family_of(token)
        self.check((family.app, family.account) == pair, "no token goes to another subject", pair, token)
        self._ready[process] += 1
        is_entered = self._issued[process] >= self._ready[process]
        self.check(is_entered, "each audit entry is written before its act", process, "token issued")
        bound = self._bound(is_degraded=ready.degraded)
        self._read(pair, family.number, asked - bound)
        for consent in self.consents:
            if consent.family is family and not self._forgotten(consent):
                is_late = asked > consent.ended_at + bound
                self.check(not is_late, "no token after an acknowledged revocation", pair, process, token)
        given = self._given[process, pair]
        version = self._families.index(family), number
        newer = [each for each in given if each[0] <= asked and each[1:] > version and not self._may_lack(*each[1:])]
        self.check(not newer, "no older version after a newer one", pair, process, token, newer)
        given.append((self._now, *version))

    def _may_lack(self, place: int, number: int) -> bool:
        """Tell whether a standby that took over may lack this token."""
        return self.troubles.may_forget_answer(self._families[place], number - 1)

    def _forgotten(self, consent: Consent) -> bool:
        """Tell whether a standby that took over may lack the revocation: for a while, or for ever if its broker died."""
        by = consent.ended_by
        return any(
            behind <= consent.ended_at <= at
            and (self._now <= at + FAILOVER_GRACE or by is None or self.troubles.was_disturbed(by, consent.ended_at))
            for behind, at in self.troubles.failovers
        )

    def may_be_lost(self, family: Family) -> bool:
        """Tell whether the newest tokens of a family, or its consent, may be lost by nature."""
        consent = next((each for each in self.consents if each.family is family), None)
        done = inf if consent is None else consent.done_at
        if consent is not None and consent.session in self._unrevoked:
            return True
        return self.troubles.may_lose(family) or self.troubles.may_forget(family.answers[0].at, done)

    def may_lack(self, consent: Consent) -> bool:
        """Tell whether a standby that took over may lack this consent, or there is nothing of it to lack."""
        family = consent.family
        return family is None or self.troubles.may_forget(family.answers[0].at, consent.done_at)

    def consented(self, pair: Pair, session: str) -> Consent:
        """Note a consent that begins. What began to end the pair before, and has no answer, may end it too."""
        erasing = [erased for pairs, erased in self.endings if pair in pairs]
        self.consents.append(Consent(pair, session, ending=bool(erasing), erased=any(erasing)))
        return self.consents[-1]

    def _check_reason(self, pair: Pair, asked: float, reason: str) -> None:
        mine = [each for each in self.consents if each.pair == pair]
        held = [each for each in mine if each.done_at < asked and not each.ending]
        if not held or any(each.ending for each in mine):
            return
        families = [
            each.family for each in held if each.family is not None
        ]  # of two consents at once either may be last
        if any(map(self.may_lack, held)) or any(map(self.troubles.may_forget_answer, families)):
            return
        if reason == "refreshUncertain":
            is_right = any(map(self.troubles.may_lose, families))
        else:
            is_right = reason == "expired" and not all(each.alive for each in families)
        self.check(is_right, "a user is asked only for a reason", pair, reason)

    # events

    def received(self, event: AgentEvent, asked: float) -> None:
        conversation = self.conversations[event.target.address]
        acked_at = conversation.acked.get(event.id, inf)
        lossy = self.troubles.may_forget(acked_at, acked_at)
        self.check(lossy or asked <= acked_at, "no event comes after it was acknowledged", event.id)
        if event.id not in conversation.seen:
            stored = self._events_stored.get(event.id, inf)
            lossy = self.troubles.may_forget(stored, stored)
            later = [each.id for each in conversation.seen.values() if each.created_at.timestamp() - EPOCH > stored]
            self.check(lossy or not later, "events are in order for each conversation", event.id, later)
            conversation.seen[event.id] = event
