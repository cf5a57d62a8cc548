"""The instructions of a parent to a worker."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from oauthbroker.core.dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A worker's instructions from its parent: its number, how many there are, and the inherited descriptors.

    `fds` are the listening sockets; `ready` is where it reports, once, that it serves. It is passed as JSON in an
    argument: it holds no secret.
    """

    number: int
    of: int
    parent: int
    ready: int
    fds: dict[str, list[int]] = field(default_factory=dict)
    metrics_folder: str = ""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Post:
        given: dict[str, Any] = json.loads(text)
        return cls(**given)

    def say_ready(self) -> None:
        with suppress(OSError):
            os.write(self.ready, b"1")
            os.close(self.ready)
