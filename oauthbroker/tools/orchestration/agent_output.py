"""What tools print and log in an agent process. There each line is written with the call that wrote it; the
orchestrator logs the lines, without tokens and within bounds. A line of `OutputStream` is a mark and JSON: tool, level,
source and text. Other lines come from programs that tools have started, or from code below Python."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, Final

from oauthbroker.tools.calling.call_life import CallLife, calling
from oauthbroker.tools.types.catalog import shown_name
from oauthbroker.tools.types.results import truncated

MARK: Final = "\x1e"  # the record separator of ASCII
PRINTED: Final = "printed"  # the source of a line that is no log record
MOST_TEXT: Final = 64 * 1024  # characters of a line that a process sends
MOST_BYTES: Final = 1024 * 1024  # of a line that is read
MOST_SHOWN: Final = 8192  # characters of a line in the log
MOST_LINES: Final = 1000  # of one process in a span
SPAN_SECONDS: Final = 10.0
_LEVELS: Final = {logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL}


class OutputStream(io.TextIOBase):
    """stdout and stderr of an agent process. It sends whole lines, so that those of parallel calls do not mix."""

    def __init__(self, buffer: BinaryIO) -> None:
        self.buffer = buffer
        self._file = open(buffer.fileno(), "wb", closefd=False)  # noqa: SIM115  (it lives as long as the process)
        self._lock = threading.RLock()
        self._begun: dict[tuple[int, CallLife | None], str] = {}  # by thread and call

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.buffer.fileno()

    def write(self, text: str) -> int:
        """Send the lines that end in a text. The rest of it waits for its end."""
        begun = threading.get_ident(), calling.get()
        with self._lock:
            *lines, rest = (self._begun.pop(begun, "") + text).split("\n")
            if rest:
                self._begun[begun] = rest[: MOST_TEXT + 1]
            for line in lines:
                self.send(line, call=begun[1])
        return len(text)

    def flush(self) -> None:
        """Send the lines that have begun."""
        with self._lock:
            for begun in list(self._begun):
                self.send(self._begun.pop(begun), call=begun[1])

    def send(self, line: str, *, call: CallLife | None, level: int = logging.INFO, source: str = PRINTED) -> None:
        """Send one line. A long one ends at a space, because a token that was cut is no longer known."""
        if len(line) > MOST_TEXT:
            line = line[:MOST_TEXT].rpartition(" ")[0] + " ..."
        tool = "" if call is None else f"{call.tool} (given up)" if call.is_over else call.tool
        with self._lock, suppress(OSError):  # the orchestrator is gone
            self._file.write(f"{MARK}{json.dumps([tool, level, source, line])}\n".encode("ascii"))
            self._file.flush()


class _Records(logging.Handler):
    def __init__(self, stream: OutputStream) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        try:
            lines = self.format(record).splitlines()
        except Exception:  # noqa: BLE001  (a record of a tool whose parts do not fit)
            self.handleError(record)
        else:
            for line in lines:
                self._stream.send(line, call=calling.get(), level=record.levelno, source=record.name)


def send_output() -> None:
    """Send what this process prints and logs to its orchestrator: our loggers from INFO on, others from WARNING on."""
    stream = OutputStream(sys.stdout.buffer)
    sys.stdout = sys.stderr = stream
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[_Records(stream)])
    logging.getLogger("oauthbroker").setLevel(logging.INFO)


class AgentOutput:
    """Logs the lines of one agent instance. `name` is the instance's."""

    def __init__(self, name: str, log: logging.Logger, scrub: Callable[[str], str]) -> None:
        self._name, self._log, self._scrub = shown_name(name), log, scrub
        self._since, self._lines = 0.0, 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Log lines until the process ends."""
        begun = b""
        while data := await stream.read(64 * 1024):
            *lines, begun = (begun + data).split(b"\n")
            for line in lines:
                self._take(line)
            begun = begun[:MOST_BYTES]
        self._take(begun)

    def _take(self, line: bytes) -> None:
        raw, _, marked = line.decode("utf-8", "replace").partition(MARK)
        self._show("", logging.INFO, PRINTED, raw)
        try:
            sent: Any = json.loads(marked) if marked else None
        except (ValueError, RecursionError):
            sent = None
        match sent:
            case [str(tool), int(level), str(source), str(text)]:
                self._show(tool, level, source, text)
            case _:
                self._show("", logging.INFO, PRINTED, marked)

    def _show(self, tool: str, level: int, source: str, text: str) -> None:
        if not text.strip() or not self._admits():
            return
        shown = truncated(self._scrub(text), MOST_SHOWN).expandtabs()
        printable = "".join(char if char.isprintable() else "\ufffd" for char in shown)
        who = f"{self._name} {shown_name(tool)}".rstrip()
        self._log.log(level if level in _LEVELS else logging.INFO, "%s %s: %s", who, shown_name(source), printable)

    def _admits(self) -> bool:
        """Return whether one more line may be logged. The first one too many is reported."""
        now = asyncio.get_running_loop().time()
        if now - self._since >= SPAN_SECONDS:
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines == MOST_LINES + 1:
            message = "%s: more than %d lines in %d seconds, the others are left out"
            self._log.warning(message, self._name, MOST_LINES, SPAN_SECONDS)
        return self._lines <= MOST_LINES
