"""A caller is cancelled while its work is on a thread: nothing that the work owns is lost."""

from __future__ import annotations

import ast
import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import oauthbroker
from oauthbroker.audit import TokenRefreshed
from oauthbroker.audit.chain import AuditKeys
from oauthbroker.audit.file import AuditFile
from oauthbroker.audit.memory import AuditList
from oauthbroker.model.bundle import Bundle
from oauthbroker.model.settings import Settings
from oauthbroker.observability.metrics import Metric, Metrics
from oauthbroker.observability.shared_metrics import MetricsFolder, Sharing
from oauthbroker.repository.repository import KINDS, LEASES
from oauthbroker.store.memory import MemoryStore
from oauthbroker.testing import TestClock
from oauthbroker.wiring.opening import open_broker

pytestmark = pytest.mark.case("93")
SOURCE = Path(oauthbroker.__file__).parent
PATIENCE = 30.0
AT = datetime(2026, 2, 1, tzinfo=UTC)
OWNING = {
    "core/lifecycle.py": "`on_thread`",
    "store/file/locked_writes.py": "`Writer.run`, which waits as `on_thread` does",
}
OWNING_NOTHING = {
    "cli/doctor/values_outside.py": "a read of Vault or AWS, whose answer is looked at",
    "cli/login/consent.py": "opens a browser",
    "cli/new_server.py": "makes a store in a folder that a stopped command removes",
    "tokens/team_values.py": "a read of Vault or AWS, for all callers; the next one reads again",
    "flowtools/serving/data.py": "erases a user to the end on the thread, and closes the database there; an erasure can be repeated",
    "flowtools/serving/pages.py": "reads files and rows; its connection is closed on the thread",
    "flowtools/serving/service.py": "waits for the runs that are under way when the service ends; `on_thread` for all else",
    "integrations/langgraph.py": "a step of a synchronous graph: its own checkpointer keeps it, and a run that is given up goes on from there",
    "wiring/opening.py": "reads configuration",
    "wiring/parts.py": "reads other processes' circuits; its lock is released on the thread",
    "web/pages/metrics_page.py": "reads other processes' figures; its lock is released on the thread",
    "audit/trail.py": "reads the log",
    "cli/doctor/place.py": "asks the running broker once, in a process that ends with it",
    "tools/base/bash.py": "looks at a script's file, and closes it on the thread",
    "tools/changesets/activation.py": "looks up the newest revision",
    "tools/changesets/editor.py": "opens or commits a changeset, which are durable; tests/unit/tools/changesets/test_crashes.py",
    "tools/isolation/process_tool.py": "looks up the folders of open changesets",
    "cli/demo/agent.py": "the demo's request, in a process that ends with it",
}


class Late(ThreadPoolExecutor):
    """One thread, which begins its work when it may."""

    def __init__(self) -> None:
        super().__init__(1)
        self.asked, self.may, self._begun = asyncio.Event(), threading.Event(), threading.Event()

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        def later() -> Any:
            self._begun.set()
            assert self.may.wait(PATIENCE)
            return work(*args, **more)

        self.asked.set()
        return super().submit(later)

    def keep_busy(self) -> None:
        """What comes next waits in the queue, where it can still be called off."""
        self.submit(lambda: None)
        self.asked.clear()

    def is_running(self) -> bool:
        return self._begun.wait(PATIENCE)


@dataclass
class Stage:
    """What the works of the table share."""

    folder: Path
    clock: TestClock = field(default_factory=TestClock)
    closing: list[Callable[[], object]] = field(default_factory=list)

    def held(self) -> list[str]:
        """The descriptors below the folder."""
        found = []
        for descriptor in Path("/proc/self/fd").iterdir():
            try:
                found.append(str(descriptor.readlink()))
            except FileNotFoundError:
                continue
        return [name for name in found if name.startswith(str(self.folder))]


async def a_start(stage: Stage) -> None:
    store = MemoryStore(kinds=KINDS, lease_kinds=LEASES, clock=stage.clock)
    bundle = Bundle(Settings(public_base_url="http://127.0.0.1:8420"), {})
    given: dict[str, Any] = {"env": {}, "clock": stage.clock, "store": store, "audit": AuditList(), "background": False}
    async with open_broker(bundle, metrics_folder=stage.folder / "metrics", **given):
        pytest.fail("it was cancelled")


def prepared_checkpoint(stage: Stage) -> Callable[[], Awaitable[None]]:
    log = AuditFile(stage.folder, AuditKeys(lambda label, *parts: bytes(32)))
    log.write(TokenRefreshed(app="mail", grant="grant-1", forced=False), AT)
    log.write(TokenRefreshed(app="mail", grant="grant-1", forced=False), AT)
    stage.closing.append(log.close)
    return log.keep_checkpoint


def prepared_figures(stage: Stage) -> Callable[[], Awaitable[None]]:
    place, metrics = MetricsFolder.open(stage.folder / "metrics", stage.clock), Metrics()
    metrics.add(Metric.EVENTS_DEAD)
    stage.closing.append(place.close)
    return Sharing(place=place, metrics=metrics, now=dict).run


ROWS: dict[str, Callable[[Stage], Callable[[], Awaitable[None]]]] = {
    "a start": lambda stage: lambda: a_start(stage),
    "the checkpoint of the audit log": prepared_checkpoint,
    "the figures for others": prepared_figures,
}


@pytest.fixture
async def pool() -> AsyncIterator[Late]:
    late = Late()
    asyncio.get_running_loop().set_default_executor(late)
    yield late
    late.may.set()


@pytest.mark.parametrize("moment", ["queued", "running"])
@pytest.mark.parametrize("name", ROWS)
async def test_work_on_a_thread_loses_nothing_when_its_caller_is_cancelled(
    tmp_path: Path, pool: Late, name: str, moment: str
) -> None:
    stage = Stage(tmp_path)
    work = ROWS[name](stage)
    if moment == "queued":
        pool.keep_busy()
    task = asyncio.ensure_future(work())
    await asyncio.wait_for(pool.asked.wait(), PATIENCE)
    if moment == "running":
        assert pool.is_running()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    pool.may.set()
    await asyncio.wait([task], timeout=PATIENCE)
    assert task.cancelled()
    pool.shutdown(wait=True)
    for close in stage.closing:
        close()
    assert [] == stage.held()
    assert [] == [*tmp_path.rglob("*.fresh"), *tmp_path.rglob("*.new")]


def test_every_call_to_a_thread_is_in_the_tables() -> None:
    """A new call belongs to `on_thread`, and to the rows above, if its work owns anything."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        names = {node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        if "testing" not in path.parts and names & {"to_thread", "run_in_executor"}:
            found.add(str(path.relative_to(SOURCE)))
    assert found == {*OWNING, *OWNING_NOTHING}
