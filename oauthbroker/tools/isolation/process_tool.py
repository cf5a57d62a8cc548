"""A tool whose calls run in processes of their own, one for each call (`isolation: process`). The process gets the call
and, for a tool with `spec.auth`, a turn token: no key of the store, no environment. Its stdout and stderr go
nowhere."""

from __future__ import annotations

import asyncio
import json
import socket
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from oauthbroker import AuthorizationRequired
from oauthbroker.plugins import ValueCounter
from oauthbroker.tools.calling.context import Json, ToolContext, changeset_folders
from oauthbroker.tools.isolation import worker
from oauthbroker.tools.isolation.containment import Access, CallLimits, Containment
from oauthbroker.tools.isolation.places import INTERPRETER
from oauthbroker.tools.types.failures import ToolCode, ToolFailure, error_from, usual_error
from oauthbroker.tools.types.results import VALUE, Submitted

_UNIX: Final = "unix:"
_WORKER: Final = f"from {worker.__name__} import main; main()"  # compiled before, as a script is not


@dataclass(frozen=True, slots=True)
class TurnAccess:
    """How a process reaches the broker: its URL, and a token of the turn for this tool."""

    url: str
    turn_token: str = field(repr=False)


LendsAccess = Callable[[ToolContext], AbstractAsyncContextManager[TurnAccess | None]]


def no_access(_ctx: ToolContext) -> AbstractAsyncContextManager[TurnAccess | None]:
    """Lend nothing: for a tool without `spec.auth`."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTool:
    """A tool by its entry module. `lend` returns the turn token of one call, and may end it afterwards. `network`: in a
    sandbox its calls use the machine's network, else none."""

    entry: Path
    containment: Containment
    limits: CallLimits = field(default_factory=CallLimits)
    lend: LendsAccess = no_access
    network: bool = False

    async def call(self, export: str, context: ToolContext, args: dict[str, Json]) -> Json:
        """Call an export in a process of its own. Raises ToolFailure: its name is the exception's in the tool, or says
        how the process ended."""
        folders = [each for each in await asyncio.to_thread(changeset_folders.get(), context) if each.is_dir()]
        entry, context = self.entry.resolve(), replace(context, workdir=context.workdir.absolute())
        call: dict[str, Json] = {"entry": str(entry), "export": export, "context": context_data(context), "args": args}
        call["changesets"] = [str(each) for each in folders]
        call |= {"processes": self.limits.processes} if self.containment.bubblewrap else {}
        async with self.lend(context) as lent:
            call |= {} if lent is None else {"oauth": asdict(lent)}
            sockets = self._sockets(lent)
            access = Access(readable=[entry.parent], writable=folders, sockets=sockets, network=self.network)
            try:
                async with asyncio.timeout(self.limits.seconds):
                    return _end(await self._answer(call, context.workdir, access), may_ask=lent is not None)
            except TimeoutError:
                raise ToolFailure.of(usual_error(ToolCode.TIMEOUT, self.limits.seconds)) from None

    def _sockets(self, lent: TurnAccess | None) -> Sequence[Path]:
        """Return the broker's socket, the one way out of a sandbox without network. Raises ToolFailure."""
        if lent is not None and lent.url.startswith(_UNIX):
            return [Path(lent.url.removeprefix(_UNIX))]
        if lent is not None and self.containment.bubblewrap and not self.network:
            raise ToolFailure(
                "A tool without network reaches the broker over a Unix socket only.",
                name="ToolBrokerUnreachable",
                suggestion="The operator gives the runtime a unix: address, or the tool `network: open`.",
            )
        return []

    async def _answer(self, call: Mapping[str, Json], workdir: Path, access: Access) -> bytes:
        """Run the process of a call, and return the line that comes back."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            async with self.containment.running(
                [INTERPRETER, "-I", "-B", "-c", _WORKER, str(theirs.fileno())],
                workdir=workdir,
                limits=self.limits,
                descriptors=[theirs.fileno()],
                access=access,
            ) as process:
                theirs.close()
                return await self._exchange(ours, process, call)

    async def _exchange(self, channel: socket.socket, process: Process, call: Mapping[str, Json]) -> bytes:
        """Send the call and return the line that comes back, within the limit of outputs."""
        loop, answer = asyncio.get_running_loop(), bytearray()
        try:
            await loop.sock_sendall(channel, json.dumps(call).encode("ascii") + b"\n")
            while b"\n" not in answer and (piece := await loop.sock_recv(channel, 64 * 1024)):
                answer += piece
                if len(answer) > self.limits.output:
                    raise ToolFailure(f"more than {self.limits.output} bytes", name="ToolOutputTooLarge")
        except ConnectionError:
            answer.clear()
        if b"\n" not in answer:
            raise ToolFailure(f"the process ended without a result ({await _how(process)})", name="ToolProcessEnded")
        return bytes(answer.partition(b"\n")[0])


def context_data(ctx: ToolContext) -> dict[str, Json]:
    """Return a context as JSON. `logger`, `runtime` and `oauth` do not cross the border."""
    members = {each.name: getattr(ctx, each.name) for each in fields(ToolContext)}
    del members["logger"], members["runtime"]
    return members | {"message": ctx.message.to_json(), "workdir": str(ctx.workdir)}


async def _how(process: Process) -> str:
    """Return how the process ended. It may have closed the socket only: then it has a second to end."""
    try:
        async with asyncio.timeout(1):
            return f"status {await process.wait()}"
    except TimeoutError:
        return "it closed the connection"


def _end(line: bytes, *, may_ask: bool) -> Any:
    """Return the value that an answer stands for. It comes from the tool, so its form is checked. `may_ask`: the tool
    had a token, so that it may show the user a link."""
    try:
        answer: Any = json.loads(line, parse_constant=_refuse) if ValueCounter(VALUE.values).feed(line) else None
    except (ValueError, RecursionError):
        answer = None
    match answer:
        case {"output": output}:
            return output
        case {"handle": handle}:
            return Submitted(handle)
        case {"consent": dict(asked)} if may_ask:
            with suppress(ValueError):
                return AuthorizationRequired.from_json(asked)
        case {"refused": str(problem)}:
            raise ToolFailure.of(usual_error(ToolCode.OUTPUT, problem))
        case {"error": {"name": str(), "message": str()} as members}:
            error = error_from({name: text for name, text in members.items() if isinstance(text, str)})
            own = error.code not in set(ToolCode)  # the codes of the runtime are not for a tool
            raise ToolFailure.of(error if own else replace(error, code=ToolCode.TOOL))
    raise ToolFailure("the process wrote something else than a result", name="ToolAnswerInvalid")


def _refuse(_constant: str) -> None:
    raise ValueError
