"""What happens in a world, by its seed: people and agents at work, and everything that can go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

import httpx2

from oauthbroker import Turn, TurnAuth
from oauthbroker.core.errors import BrokerError
from oauthbroker.model.grant_key import grant_id
from oauthbroker.model.token_results import AuthorizationRequired, Failed, TokenResult
from tests.world.database import Weather
from tests.world.hosts import APPS, Host, bundle
from tests.world.laws import Pair
from tests.world.provider import LIFETIME, Mood
from tests.world.world import World

T = TypeVar("T")
PEOPLE: Final = ("P0", "P1")
AGENTS: Final = ("planner", "writer")
PATIENCE: Final = 120.0  # of a caller
TWICE: Final = 0.2  # of callbacks come twice at once
FAULTS: Final = (2, 3)  # of a world, the fewest and the most
PAUSES: Final = (0.0, 0.002, 0.3, 2.0, 6.0)  # between two steps
FIRST: Final = 3  # steps without a fault
STORMY: Final = Weather(lost_before=0.01, lost_after=0.01, stuck=0.004, slow=0.01)
MOODY: Final = Mood(refused=0.03, unheard=0.03, lost=0.08, busy=0.04, late=0.02)


def turn_of(account: str, agent: str, instance: str) -> Turn:
    subject = f"idp:user:{account}"
    auth = TurnAuth(actor={"type": "user", "id": subject}, subjects={"user": subject})
    return Turn(agent, instance, "Swarm/default", auth=auth)


class Work:
    """The random work of one world."""

    def __init__(self, world: World) -> None:
        self.world, self.dice, self.laws = world, world.dice, world.laws
        self.tasks = set[asyncio.Task[Any]]()
        self.frozen = dict[Host, Any]()

    def begin(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def go_on(self, steps: int) -> None:
        faults = self.dice.choices(list(_TROUBLES), list(_TROUBLES.values()), k=self.dice.randint(*FAULTS))
        later = [*faults, *self.dice.choices(_ORDINARY, k=steps - FIRST - len(faults))]
        self.dice.shuffle(later)
        if self.dice.random() < 0.3:
            self.world.database.weather = STORMY
        if self.dice.random() < 0.4:
            self.world.provider.mood = MOODY
        for kind in (*_ORDINARY[:1] * FIRST, *later):
            self.world.tell("do", kind.__name__)
            self.begin(kind(self))
            await asyncio.sleep(self.dice.choice(PAUSES))
            if self.laws.broken:
                return

    def _host(self) -> Host | None:
        up = [host for host in self.world.hosts if host.up]
        return self.dice.choice(up) if up else None

    def _pair(self) -> Pair:
        return self.dice.choice(APPS), self.dice.choice(PEOPLE)

    async def at(self, host: Host, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do work in a host's process. Raises TimeoutError where it does not end, such as in one that was killed."""
        task = host.task(work)
        done, _ = await asyncio.wait([task], timeout=PATIENCE)
        if not done:
            raise TimeoutError
        return task.result()

    # people and agents

    async def ask(self) -> None:
        """Ask for a token, several times at once now and then."""
        pair, agent = self._pair(), self.dice.choice(AGENTS)
        turn = turn_of(pair[1], agent, self.dice.choice("12"))
        calls = [self._ask(pair, turn) for _ in range(self.dice.choice((1, 1, 2, 4)))]
        await asyncio.gather(*calls)

    async def _ask(self, pair: Pair, turn: Turn) -> None:
        host = self._host()
        if host is None:
            return
        result = await self.call(host, pair, turn)
        if isinstance(result, AuthorizationRequired) and self.dice.random() < 0.8:
            await asyncio.sleep(self.dice.uniform(0, 2))
            await self._agree(pair, result)

    async def call(self, host: Host, pair: Pair, turn: Turn) -> TokenResult:
        process, asked = host.process, self.world.loop.time()
        assert process is not None
        result: TokenResult = await self.at(host, lambda: host.broker.oauth(turn).get_access_token(pair[0]))
        why = result.code.value if isinstance(result, Failed) else getattr(result, "reason", "")
        self.world.tell("told", process, *pair, result.status, why)
        self.laws.answered(pair, process, asked, result)
        return result

    async def _agree(self, pair: Pair, asked: AuthorizationRequired) -> None:
        """Agree, and come back to another broker, maybe."""
        leaving, coming = self._host(), self._host()
        if leaving is None or coming is None:
            return
        ticket = asked.authorization_url.rpartition("/")[2]
        departure = await self.at(leaving, lambda: leaving.parts.pages.service.depart(ticket))
        query = self.world.provider.agree(departure.url.reveal(), pair[1])
        consent = self.laws.consented(pair, asked.auth_session_id)
        code = query.partition(b"&")[0].removeprefix(b"code=").decode()
        write = self.laws.writes(pair, code)

        async def arrive(host: Host) -> None:
            if not host.up:  # since the person left
                return
            app = host.broker.bundle.apps[pair[0]]
            await self.at(
                host, lambda: host.parts.pages.service.arrive(app, query, lambda _: departure.cookie.reveal())
            )
            consent.done_at = write.end = self.world.loop.time()

        arrivals = [coming, leaving] if self.dice.random() < TWICE else [coming]
        await asyncio.gather(*map(quiet(arrive), arrivals))
        consent.family = next((each for each in self.world.provider.families if each.code == code), None)
        self.world.tell("consented", *pair, consent.done_at)

    async def revoke(self) -> None:
        pair = self._pair()
        await self._end([pair], lambda host: host.broker.revoke(pair[0], subject=f"idp:user:{pair[1]}"))

    async def erase(self) -> None:
        person = self.dice.choice(PEOPLE)
        pairs = [(app, person) for app in APPS]
        await self._end(pairs, lambda host: host.broker.erase(f"idp:user:{person}"), erased=True)

    async def _end(self, pairs: list[Pair], work: Callable[[Host], Awaitable[Any]], *, erased: bool = False) -> None:
        host = self._host()
        if host is None:
            return
        ending = [each for each in self.laws.consents if each.pair in pairs]
        before = [each for each in ending if each.done_at < self.world.loop.time()]
        writes = [self.laws.writes(pair) for pair in pairs]
        for consent in ending:
            consent.ending, consent.erased = True, consent.erased or erased
        unanswered = pairs, erased
        self.laws.endings.append(unanswered)
        await self.at(host, lambda: work(host))
        self.laws.endings.remove(unanswered)
        for write in writes:
            write.end = self.world.loop.time()
        for consent in before:
            key = (consent.pair[0], f"idp:user:{consent.pair[1]}")
            is_entered = grant_id(*key) in self.laws.grants_ended or self.laws.may_lack(consent)
            self.laws.check(is_entered, "the end of a grant is in the audit log before it is acknowledged", key)
            if consent.ended_at > self.world.loop.time():
                consent.ended_at, consent.ended_by = self.world.loop.time(), host.process
        self.world.tell("ended", pairs)

    async def take(self) -> None:
        host = self._host()
        if host is not None:
            await self.receive(host, self.dice.choice(AGENTS), luck=self.dice.random())

    async def receive(self, host: Host, agent: str, *, luck: float) -> None:
        """Take the next event of an agent, and acknowledge it, or refuse it, or vanish."""
        asked = self.world.loop.time()
        lease = await self.at(host, lambda: host.parts.queues.lease(agent))
        if lease is None:
            return
        self.laws.received(lease.event, asked)
        self.world.tell("received", lease.event.id, lease.event.order)
        if luck < 0.7 and await self.at(host, lease.ack):
            self.laws.conversations[lease.event.target.address].acked[lease.event.id] = self.world.loop.time()
        elif luck > 0.85:
            await self.at(host, lease.nack)

    # brokers

    async def kill(self) -> None:
        host = self._host()
        if host is not None and host.process is not None:
            self.laws.troubles.begin("killed", host.process)
            host.kill()
            await asyncio.sleep(self.dice.choice((0.1, 3.0, 40.0)))
            if host.running is None:
                host.start()

    async def freeze(self) -> None:
        host = self._host()
        if host is not None and host.process is not None:
            process, trouble = host.process, self.laws.troubles.begin("frozen", host.process)
            host.freeze()
            await asyncio.sleep(self.dice.choice((0.5, 5.0, 40.0, 70.0)))
            process.runs = not process.killed
            self.laws.troubles.end(trouble)

    async def reload(self) -> None:
        host = self._host()
        if host is not None:
            title = self.dice.choice(("", "another title"))
            await self.at(host, lambda: host.broker.reload(bundle(self.world.consistency, title)))

    async def rotate(self) -> None:
        host = self._host()
        if host is not None and host.rotation is not None:
            rotation = host.rotation
            await self.at(host, lambda: rotation.rotate(wait=60))
            if self.dice.random() < 0.5:
                await self.at(host, rotation.reseal)
            await self.at(host, rotation.retire)

    # the database and the provider

    async def away(self) -> None:
        """Let the database be away, for all or for one host."""
        who = self.dice.choice(("*", "*", self.dice.choice(self.world.hosts).name))
        trouble = self.laws.troubles.begin("away", who)
        self.world.database.leave(who)
        await asyncio.sleep(self.dice.choice((2.0, 8.0, 45.0, self.dice.uniform(2, 300))))
        self.world.database.away.discard(who)
        self.laws.troubles.end(trouble)

    async def away_at_an_answer(self) -> None:
        """Let the database be away before the next refreshed token can be stored."""
        refreshed = asyncio.Event()
        self.world.provider.refreshed = refreshed.set
        async with asyncio.timeout(4 * LIFETIME):
            await refreshed.wait()
        await self.away()

    async def fail_over(self) -> None:
        behind = self.world.loop.time()
        self.world.database.fall_behind()
        await asyncio.sleep(self.dice.uniform(0.5, 15))
        if self.world.database.behind is not None:
            self.world.database.fail_over()
            self.laws.taken_over(behind)

    async def refuse(self) -> None:
        """Let the provider be unreachable for a while."""
        before, self.world.provider.mood = self.world.provider.mood, replace(MOODY, refused=1.0)
        await asyncio.sleep(self.dice.uniform(1, 30))
        self.world.provider.mood = before


def quiet(work: Callable[[T], Awaitable[None]]) -> Callable[[T], Awaitable[None]]:
    """Let work fail as a caller sees it fail: it is tried again later, or not."""

    async def tried(given: T) -> None:
        with suppress(BrokerError, TimeoutError, httpx2.HTTPError):
            await work(given)

    tried.__name__ = work.__name__
    return tried


_ORDINARY: Final = [quiet(each) for each in (Work.ask, Work.ask, Work.ask, Work.ask, Work.take, Work.take)]
_TROUBLES: Final = {
    quiet(work): share
    for work, share in {
        Work.revoke: 0.6, Work.erase: 0.3, Work.kill: 0.5, Work.freeze: 0.3, Work.reload: 0.3, Work.rotate: 0.2,
        Work.away: 0.3, Work.away_at_an_answer: 0.3, Work.fail_over: 0.1, Work.refuse: 0.3,
    }.items()
}  # fmt: skip
