"""Tokens stay alive at a provider that we did not write: its refresh tokens are good for one use, its tokens short."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from playwright.async_api import Browser

from oauthbroker import AuthorizationRequired, Ready
from oauthbroker.core.secret import Secret
from oauthbroker.model.token_results import TokenResult
from oauthbroker.observability.metrics import Metric
from oauthbroker.testing import Canaries
from tests.e2e.rotation import RESOURCE, Brokers, Scene, audience, scene
from tests.e2e.rotation_worker import PEOPLE
from tests.faults.storm_kit import People
from tests.faults.storm_siege import LIFETIME, Facts, Pair, Siege

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SHORT = 2  # seconds that a token lives
GENERATIONS = 5
PROCESSES, TASKS = 6, 10
KILLS, WORKERS = 20, 3


async def replaced(stage: Scene, app: str, old: Ready) -> Ready:
    """The next token at once: the tool says that this one was refused."""
    new = await stage.report(app, old)
    assert isinstance(new, Ready), new
    assert old.access_token != new.access_token
    stage.canaries.add(new.access_token, "access token")
    return new


@pytest.mark.asyncio(loop_scope="session")
async def test_a_token_is_refreshed_for_generations_with_one_request_each(
    tmp_path: Path, canaries: Canaries, chromium: Browser
):
    """Once agreed to in a browser, it is kept alive by nothing but a tool's plain calls."""
    async with scene(tmp_path, canaries, "personal", chromium=chromium) as stage:
        await stage.provider.let_tokens_live(SHORT)
        alice = await stage.connected("personal")
        tokens = [await stage.token("personal")]
        before = await stage.refreshes("personal")
        for generation in range(GENERATIONS):
            assert (200, "alice") == who(await stage.use(tokens[-1]))
            assert (before[0] + generation, before[1] + generation, 0) == await stage.refreshes("personal")
            await asyncio.sleep(SHORT / 2 + 0.05)  # refreshed from half of its life on
            tokens.append(await stage.token("personal"))
        assert (200, "alice") == who(await stage.use(tokens[-1]))
        assert (before[0] + GENERATIONS, before[1] + GENERATIONS, 0) == await stage.refreshes("personal")
        assert GENERATIONS + 1 == len({token.access_token.reveal() for token in tokens})
        assert not any(token.degraded for token in tokens)
        assert [] == alice.shared_circuits


async def test_every_way_to_prove_who_we_are_works_for_refreshes_too(tmp_path: Path, canaries: Canaries):
    apps = ("personal", "shared", "signed", "public")  # basic, post, private_key_jwt, none
    async with scene(tmp_path, canaries, *apps) as stage:
        for app, token in zip(apps, await stage.grant(*apps), strict=True):
            assert (200, "alice") == who(await stage.use(await replaced(stage, app, token)))
            assert (1, 1, 0) == await stage.refreshes(app)


async def test_a_refreshed_token_is_for_the_resource_that_the_first_one_was_for(tmp_path: Path, canaries: Canaries):
    """RFC 8707: who leaves `resource` out of a refresh gets a token for userinfo from this provider."""
    async with scene(tmp_path, canaries, "notes") as stage:
        (token,) = await stage.grant("notes")
        for _ in range(2):
            assert (RESOURCE, ("notes:read",)) == (audience(token.access_token.reveal()), token.scopes)
            token = await replaced(stage, "notes", token)
        assert (RESOURCE, ("notes:read",)) == (audience(token.access_token.reveal()), token.scopes)
        seen = await stage.provider.events("grant.success", client="notes", grant="refresh_token")
        assert [RESOURCE] * 2 == [event["resource"] for event in seen]
        unasked = await stage.redeem("notes", await stage.refresh_token("notes"))
        assert (200, None) == (unasked.status_code, audience(unasked.json()["access_token"]))


@pytest.mark.case("61")
async def test_a_token_that_the_provider_has_ended_is_replaced_once_for_all_who_report_it(
    tmp_path: Path, canaries: Canaries
):
    async with scene(tmp_path, canaries, "public") as stage:
        (token,) = await stage.grant("public")
        await stage.provider.end(token.access_token)
        assert 401 == (await stage.use(token))[0]
        assert token.access_token == (await stage.token("public")).access_token  # the broker does not know yet
        answers = await asyncio.gather(*(stage.report("public", token) for _ in range(20)))
        assert {"ready"} == {answer.status for answer in answers}
        new = await stage.token("public")
        assert all(answer.access_token == new.access_token for answer in answers if isinstance(answer, Ready))
        assert (200, "alice") == who(await stage.use(new))
        assert (1, 1, 0) == await stage.refreshes("public")


@pytest.mark.case("52")
async def test_a_reused_refresh_token_ends_the_grant_and_a_person_is_asked(tmp_path: Path, canaries: Canaries):
    """What makes the storm below mean something: this provider forgives no second use."""
    async with scene(tmp_path, canaries, "public") as stage:
        (first,) = await stage.grant("public")
        spent = await stage.refresh_token("public")
        token = await replaced(stage, "public", first)
        assert spent != await stage.refresh_token("public")
        assert 400 == (await stage.redeem("public", spent)).status_code
        assert (1, 1, 1) == await stage.refreshes("public")
        assert 401 == (await stage.use(token))[0]

        for _ in range(3):
            assert "expired" == asked(await stage.report("public", token)).reason
        assert 2 == len(await stage.provider.events("grant.error", client="public")), "the thief's and one of ours"
        await stage.agree(asked(await stage.report("public", token)))
        assert (200, "alice") == who(await stage.use(await stage.token("public")))


@pytest.mark.case("46")
async def test_one_expired_grant_is_refreshed_once_for_many_processes(tmp_path: Path, canaries: Canaries):
    reported: list[list[str]] = []

    def hear(line: list[str]) -> None:
        if line[0] == "told":
            reported.append(line[2:])

    async with scene(tmp_path, canaries, "personal") as stage:
        await stage.provider.let_tokens_live(1)
        await stage.agree(await stage.ask("personal"))
        await stage.provider.let_tokens_live(3600)
        async with Brokers.at(stage, hear) as brokers:
            for _ in range(PROCESSES):
                brokers.order(f"ask personal {TASKS}")
            await brokers.until(lambda: len(brokers.up) == PROCESSES)
            await asyncio.sleep(1)  # so that the token is over
            brokers.order("go")
            await brokers.until(lambda: len(brokers.ends) == PROCESSES)
        assert {"ready": PROCESSES * TASKS} == Counter(word for word, _, _ in reported)
        assert 1 == len({fingerprint for _, fingerprint, _ in reported})
        assert (1, 1, 0) == await stage.refreshes("personal")
        assert 2 == await stage.provider.count("token"), "the exchange and the refresh"
        assert (200, "alice") == who(await stage.use(await stage.token("personal")))


class Persons(People):
    """The people of the storm, at a provider of their own. They do one thing at a time, and to its end."""

    def __init__(self, stage: Scene) -> None:
        self._stage = stage
        self._busy = asyncio.Lock()
        self.agreed: Counter[tuple[str, str]] = Counter()
        """How often, by app and by the reason that they were told."""

    async def ask(self, app: str, person: int) -> TokenResult:
        return await self._stage.ask_for_token(app, PEOPLE[person])

    async def agree(self, app: str, person: int) -> AuthorizationRequired | None:
        return await asyncio.shield(self._agree(app, person))

    async def _agree(self, app: str, person: int) -> AuthorizationRequired | None:
        async with self._busy:
            result = await self.ask(app, person)
            if not isinstance(result, AuthorizationRequired):
                return None
            await self._stage.agree(result, PEOPLE[person])
            self.agreed[app, result.reason] += 1
            return result


@pytest.mark.case("47")
@pytest.mark.rule("12.5.3-3")
async def test_brokers_killed_amid_refreshes_leave_living_grants_or_say_that_an_answer_was_lost(
    tmp_path: Path, canaries: Canaries
):
    facts, apps = Facts(), ("personal", "public")
    pairs: list[Pair] = [(app, person) for app in apps for person in range(len(PEOPLE))]
    async with scene(tmp_path, canaries, *apps) as stage:
        await stage.provider.let_tokens_live(LIFETIME)
        begin, people = time.monotonic(), Persons(stage)
        for pair in pairs:
            await people.agree(*pair)
        await stage.provider.be_late(0.1)

        async def opens(token: str) -> bool:
            return (
                200
                == (
                    await stage.use(Ready(access_token=Secret(token), token_type="Bearer", expires_at=None, scopes=()))
                )[0]
            )

        async with Brokers.at(stage, facts.hear) as brokers:
            for _ in range(WORKERS):
                brokers.order("live")
            storm = Siege(brokers, people, facts, random.Random(20261121))
            await storm.go_on(KILLS)
            assert [] == await storm.settle(pairs, opens), "not alive in the end"
        assert {-signal.SIGKILL} == {code for _, code in brokers.ends}
        assert KILLS <= len(brokers.ends)
        success = len(await stage.provider.events("grant.success", grant="refresh_token"))
        refused = len(await stage.provider.events("grant.error", grant="refresh_token"))
        ended = Counter(event["client"] for event in await stage.provider.events("grant.revoked"))
        counts = stage.broker.metrics.counts
        own = sum(times for (metric, _), times in counts.items() if metric is Metric.REFRESH_FAILURES)
    reasons = {(app, "noGrant"): len(PEOPLE) for app in apps}
    reasons |= {(app, "refreshUncertain"): times for app, times in ended.items()}
    assert reasons == people.agreed, (
        "each person is asked once, and once more for each grant that ended, with the reason"
    )
    assert 0 < ended.total() <= refused <= facts.after_lost.total() + own, "each refusal follows a lost answer"
    assert {"uncertain"} >= set(facts.ended)
    final = {word for word in facts.answers if not word.startswith("later")}
    assert {"ready", "degraded", "link:refreshUncertain"} >= final
    sensible = len(pairs) * ((time.monotonic() - begin) / (LIFETIME / 2) + 1) + refused + ended.total()
    assert sensible >= success + refused, "a loop"


def asked(result: TokenResult) -> AuthorizationRequired:
    assert isinstance(result, AuthorizationRequired), result
    return result


def who(answer: tuple[int, dict[str, str]]) -> tuple[int, str]:
    return answer[0], answer[1].get("sub", "")
