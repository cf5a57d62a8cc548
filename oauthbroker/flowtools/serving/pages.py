"""The operators' pages: tools with their versions, one version with its findings and its drawing, runs, and why one
failed. They only read, and show no input, output, token or secret."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from oauthbroker import BrokerError, Code
from oauthbroker.flowtools.risk.drawing import draw
from oauthbroker.flowtools.risk.records import finding_key
from oauthbroker.flowtools.risk.rules import order
from oauthbroker.flowtools.running import journal
from oauthbroker.flowtools.running.approvals import RunLine, decisions, run_lines
from oauthbroker.flowtools.serving.service import FlowService
from oauthbroker.flowtools.specification.source import FlowRefused
from oauthbroker.plugins import PluginPage, PluginPageRequest, PluginPages, PluginView

PAGES: Final = Path(__file__).parents[1] / "pages"
LINES: Final = 50
_RUN, _PAGE = re.compile(r"[0-9a-f]{32}"), re.compile(r"[1-9][0-9]{0,5}")
_WAITS: Final = (journal.FAILING, journal.ESCALATED, journal.WAITING, journal.SENT, journal.RETRY, journal.WAITS)
_LOOKS: Final = {
    **dict.fromkeys(("green", journal.SUCCEEDED, journal.DONE), "good"),
    **dict.fromkeys(("yellow", *_WAITS), "warn"),
    **dict.fromkeys(("red", journal.FAILED, journal.UNKNOWN), "bad"),
}
_TEN_SECONDS: Final = 10
T = TypeVar("T")


class FlowPages:
    """The pages of one service. One page at a time is read: runs need the other connections of the database."""

    def __init__(self, service: FlowService) -> None:
        self._service, self._versions = service, service.versions
        self._reading = asyncio.Lock()

    def declared(self) -> PluginPages:
        handlers = {"": self.tools, "/tools/{version}": self.version, "/runs": self.runs, "/runs/{run}": self.run}
        return PluginPages(folder=PAGES, pages=[PluginPage(path=path, handler=each) for path, each in handlers.items()])

    async def tools(self, page_request: PluginPageRequest) -> PluginView:
        lines = await self._read(lambda: [self._tool_line(name) for name in self._versions.names()])
        return _view("tools", page_request.words.tools, page_request, tools=lines)

    async def version(self, page_request: PluginPageRequest) -> PluginView:
        name, _, number = page_request.path["version"].partition("@")
        return await self._read(lambda: self._version(page_request, name, number))

    async def runs(self, page_request: PluginPageRequest) -> PluginView:
        names, asked = await self._read(self._versions.names), page_request.query
        known = {"tool": ("tool", names), "status": ("state", journal.STATES)}
        where = {column: asked[name] for name, (column, words) in known.items() if asked.get(name) in words}
        page = int(asked["page"]) if _PAGE.fullmatch(asked.get("page", "")) else 1

        def read() -> tuple[list[RunLine], Mapping[str, str]]:
            with self._service.database.reading() as connection:
                lines = run_lines(connection, limit=LINES + 1, offset=(page - 1) * LINES, **where)
            used = {f"{line.tool}@{line.version}": line for line in lines}
            flows = {reference: self._service.flow_of(line) for reference, line in used.items()}
            return lines, {reference: flow.tool.trigger.type for reference, flow in flows.items() if flow}

        lines, triggers = await self._read(read)
        shown: dict[str, Any] = {"runs": lines[:LINES], "more": len(lines) > LINES, "page": page, "triggers": triggers}
        choices: dict[str, Any] = {"names": names, "states": journal.STATES, "where": where}
        return _view("runs", page_request.words.runs, page_request, **shown, **choices)

    async def run(self, page_request: PluginPageRequest) -> PluginView:
        run = page_request.path["run"]

        def read() -> dict[str, Any]:
            with self._service.database.reading() as connection:
                lines = run_lines(connection, limit=1, id=run)
                steps, made = journal.step_lines(connection, run), decisions(connection, run)
            if not lines:
                raise BrokerError(Code.NOT_FOUND)
            line, flow = lines[0], self._service.flow_of(lines[0])
            places = {name: at for at, name in enumerate(order(flow.tool))} if flow else {}
            steps.sort(key=lambda step: places.get(step.node, len(places)))
            advice = getattr(page_request.words, f"advice_{line.code or line.state}", "")
            return {"run": line, "tool": flow and flow.tool, "steps": steps, "decisions": made, "advice": advice}

        if not _RUN.fullmatch(run):
            raise BrokerError(Code.NOT_FOUND)
        shown = await self._read(read)
        return _view("run", page_request.words.run_title.format(tool=shown["run"].tool), page_request, **shown)

    def _tool_line(self, name: str) -> dict[str, Any]:
        """Return a tool of the list. `flow` is the version that serves, unless it cannot run here; then `failure` says
        why."""
        flow, found = self._service.serving.get(name), self._service.problems
        failure = "" if flow else next((each.text for each in found if each.text.startswith(f"{name}: ")), "")
        serves, numbers, withdrawn = None, list[int](), frozenset[int]()
        with suppress(FlowRefused):  # a damaged record: the failure says so
            serves, numbers = self._versions.serving(name), self._versions.numbers(name)
            withdrawn = frozenset(each for each in numbers if self._versions.withdrawn(name, each))
        others = [each for each in reversed(numbers) if each != serves]
        about = {"name": name, "serves": serves, "others": others, "withdrawn": withdrawn}
        return {**about, "flow": flow, "failure": failure}

    def _version(self, page_request: PluginPageRequest, name: str, number: str) -> PluginView:
        problems, flow = list[str](), None
        try:
            flow = self._versions.deployed(f"{name}@{number}")
        except FlowRefused as refused:
            problems = [str(problem) for problem in refused.problems]
        except BrokerError as error:
            if error.code is not Code.REQUEST_INVALID:
                raise
        if flow is None and not problems:
            raise BrokerError(Code.NOT_FOUND)
        title = page_request.words.version_title.format(tool=name, version=number)
        more: dict[str, Any] = {"flow": flow, "problems": problems, "others": []}
        with suppress(FlowRefused):  # a damaged record: a problem says so
            more["others"] = [each for each in reversed(self._versions.numbers(name)) if str(each) != number]
        if flow is not None:
            more["serves"] = self._versions.serving(name) == flow.tool.version
            more["drawing"] = draw(flow.tool, flow.assessment.findings)
            records = self._versions.acknowledgements.of(flow.tool)
            more["findings"] = [  # with the record of the person who acknowledged it
                (found, next((each for each in records if finding_key(found) in each["findings"]), None))
                for found in flow.assessment.findings
            ]
        return _view("version", title, page_request, name=name, number=number, **more)

    async def _read(self, read: Callable[[], T]) -> T:
        """Read files and database on a thread. Raises `storeUnavailable` for an error of the database."""
        async with self._reading:
            try:
                return await asyncio.to_thread(read)
            except SQLAlchemyError:
                pass
        raise BrokerError(Code.STORE_UNAVAILABLE, note="the database of flows")


def _view(template: str, title: str, page_request: PluginPageRequest, **values: Any) -> PluginView:
    def badge(kind: str, state: str) -> tuple[str, str]:
        """Return the look and the words of a risk or a state."""
        return _LOOKS.get(state, ""), getattr(page_request.words, f"{kind}_{state}", state)

    def lasted(seconds: float) -> str:
        return str(page_request.words.seconds).format(count=f"{seconds:.{2 if seconds < _TEN_SECONDS else 0}f}")

    shown = {"badge": badge, "lasted": lasted, "moment": _moment}
    return PluginView(template=template, title=title, values=shown | values)


def _moment(at: float | str) -> datetime:
    return datetime.fromtimestamp(at, UTC) if isinstance(at, float) else datetime.fromisoformat(at)
