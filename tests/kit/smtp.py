"""A mail server on loopback that follows a script: it answers, refuses, or ends the connection at one of its steps."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

HANG_UP = "hang up"
USUAL: Mapping[str, str] = {
    "connect": "220 ready",
    "EHLO": "250 mail.test",
    "MAIL": "250 ok",
    "RCPT": "250 ok",
    "DATA": "354 go ahead",
    ".": "250 queued",
    "STARTTLS": "220 go ahead",
    "AUTH": "235 welcome",
    "QUIT": "221 bye",
}


@dataclass
class MailStandIn:
    """`script` replaces answers, by the verb of the step; `.` is the end of a message."""

    script: Mapping[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None
    implicit: bool = False
    messages: list[bytes] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    port: int = 0

    def serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.settimeout(20)
                with suppress(OSError, EOFError), connection:
                    self._greet(connection)

    def _greet(self, connection: socket.socket) -> None:
        if self.tls is None or not self.implicit:
            return self._talk(connection)
        with self.tls.wrap_socket(connection, server_side=True) as inside:
            return self._talk(inside)

    def _talk(self, connection: socket.socket) -> None:
        stream = connection.makefile("rwb")
        self._answer(stream, "connect")
        self._follow(stream, connection)

    def _follow(self, stream: Any, connection: socket.socket) -> None:
        while line := stream.readline().decode().strip():
            verb = line.split()[0].upper()
            self.commands.append(line)
            if verb == "EHLO" and not (set(self.script) & {"EHLO"}):
                offered = ["STARTTLS"] if self.tls and not self.implicit else ["AUTH PLAIN"]
                stream.write("".join(f"250-{each}\r\n" for each in ["mail.test", *offered]).encode())
                stream.write(b"250 SIZE 1000000\r\n")
                stream.flush()
                continue
            self._answer(stream, verb)
            if verb == "STARTTLS" and self.tls is not None:
                self.implicit = True  # not offered again
                with self.tls.wrap_socket(connection, server_side=True) as inside:
                    self._follow(inside.makefile("rwb"), inside)
                return
            if verb == "DATA" and self._of("DATA").startswith("354"):
                self._take(stream)

    def _take(self, stream: Any) -> None:
        lines: list[bytes] = []
        while (line := stream.readline()) not in {b".\r\n", b""}:
            lines.append(line)
        self.messages.append(b"".join(lines))
        self._answer(stream, ".")

    def _of(self, verb: str) -> str:
        return self.script.get(verb) or USUAL.get(verb, "502 unknown")

    def _answer(self, stream: Any, verb: str) -> None:
        answer = self._of(verb)
        if answer == HANG_UP:
            raise EOFError
        stream.write(f"{answer}\r\n".encode())
        stream.flush()


@contextmanager
def mail_stand_in(**given: Any) -> Iterator[MailStandIn]:
    """Run a server until the end of the block."""
    made = MailStandIn(**given)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made.port = listener.getsockname()[1]
        thread = threading.Thread(target=made.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield made
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)
