"""What calls and turns share at their end: tasks are cancelled, and durable values name whom they are about."""

from __future__ import annotations

import asyncio

from oauthbroker import Turn, TurnAuth
from oauthbroker.tools.calling.call_life import cancelled
from oauthbroker.tools.calling.journal import about


async def test_cancelled_tasks_have_ended_even_if_one_fails_in_its_cleanup():
    async def fails_in_its_cleanup() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError

    tasks = [asyncio.create_task(asyncio.Event().wait()), asyncio.create_task(fails_in_its_cleanup())]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await cancelled(tasks)
    assert [task.done() for task in tasks] == [True, True]
    assert tasks[0].cancelled()


def test_a_value_of_a_turn_is_about_all_its_subjects():
    auth = TurnAuth(actor={"type": "user", "id": "a"}, subjects={"user": "slack:user:U1", "team": "slack:team:T1"})
    assert about(Turn("mailer", "one", auth=auth))({"any": "value"}) == ["slack:user:U1", "slack:team:T1"]
    assert about(Turn("mailer", "one"))({"any": "value"}) == []
