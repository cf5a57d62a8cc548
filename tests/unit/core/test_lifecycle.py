"""Work that is done to its end: its caller may go, and what becomes of the work then is no news for asyncio."""

from __future__ import annotations

import asyncio
import gc

from oauthbroker.core.errors import BrokerError, Code
from oauthbroker.core.lifecycle import UnderWay, to_its_end


async def test_a_refusal_that_comes_after_its_caller_was_cancelled_is_not_reported_by_asyncio() -> None:
    """It would be printed with its traceback, in the frames of which secrets lie."""
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, said: reported.append(said["message"]))
    under_way, go_on = UnderWay(), asyncio.Event()

    async def refused() -> None:
        await go_on.wait()
        raise BrokerError(Code.SUBJECT_MISMATCH)

    async def called() -> None:
        await asyncio.shield(under_way.begin(refused()))

    caller = asyncio.create_task(called())
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    go_on.set()
    await under_way.close()
    await asyncio.sleep(0)
    gc.collect()
    assert [] == reported


async def test_a_caller_that_is_cancelled_again_and_again_waits_for_its_work_and_hands_over_its_result() -> None:
    work: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    lost = list[str]()
    caller = asyncio.create_task(to_its_end(work, lost.append))
    for _ in range(3):
        await asyncio.sleep(0)
        caller.cancel()
    await asyncio.sleep(0)
    assert not caller.done()
    work.set_result("made")
    await asyncio.wait([caller])
    assert caller.cancelled()
    assert ["made"] == lost
