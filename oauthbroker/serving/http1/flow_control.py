"""Hold back the reading of a connection, and bound what an answer may still send."""

from __future__ import annotations

from uvicorn.protocols.http.flow_control import FlowControl


class _UntilTheEnd(int):
    """The length that an answer without Content-Length still lacks: never too small, and never reduced."""

    def __lt__(self, other: int) -> bool:
        return False

    def __sub__(self, other: int) -> _UntilTheEnd:
        return self


UNTIL_THE_END = _UntilTheEnd()


class HeldFlow(FlowControl):
    """Flow control: reads on while the application waits for the body or the end, except while `held` for a request."""

    held = False

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()
