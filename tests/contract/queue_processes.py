"""What queues promise to several processes. A backend gives `place`, the arguments of queue_worker.py."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.store_processes import Workers, answer, order
from tests.unit.records.kit import event

Start = Callable[[int], list[subprocess.Popen[str]]]
LEASE_SECONDS = 30


class QueueProcesses(Workers):
    worker = "queue_worker.py"

    @pytest.fixture
    def workers(self, place: list[str]) -> Iterator[Start]:
        with self.started([str(LEASE_SECONDS), *place]) as start:
            yield start

    @pytest.mark.slow
    @pytest.mark.case("93")
    async def test_processes_take_each_event_once_and_in_order_while_others_put_them(
        self, workers: Start, tmp_path: Path
    ) -> None:
        """Both producers put into each conversation. A conversation never has two events in the hands of consumers."""
        events, conversations, folder = 90, 3, tmp_path / "taken"
        (folder / "done").mkdir(parents=True)
        processes = workers(4)
        for number, worker in enumerate(processes):
            put, take = f"put {number} 2 {events} {conversations}", f"take {events} {folder}"
            order(worker, put if number < 2 else take)
        async with asyncio.timeout(240):
            said = [(await asyncio.to_thread(answer, worker)).split() for worker in processes]
        assert [["done"], ["done"]] == said[:2]
        assert sorted(event(number).id for number in range(events)) == sorted(said[2] + said[3])
        numbers = {event(number).id: number for number in range(events)}
        for taken in said[2:]:
            for producer, part in ((producer, part) for producer in range(2) for part in range(conversations)):
                mine = [numbers[each] for each in taken if numbers[each] % 2 == producer]
                mine = [number for number in mine if number % conversations == part]
                assert mine == sorted(mine), "a process puts the events of a conversation in this order"

    @pytest.mark.slow
    async def test_the_event_of_a_consumer_that_was_killed_comes_back_and_in_its_place(
        self, place: list[str], tmp_path: Path
    ) -> None:
        (tmp_path / "taken" / "done").mkdir(parents=True)
        with self.started(["1", *place]) as start:
            held, other = start(2)
            order(other, "put 0 1 3 1")
            assert "done" == answer(other)
            order(held, "hold")
            assert event(0).id == answer(held)
            held.kill()
            order(other, f"take 3 {tmp_path / 'taken'}")
            async with asyncio.timeout(120):
                taken = (await asyncio.to_thread(answer, other)).split()
            assert [event(number).id for number in range(3)] == taken
