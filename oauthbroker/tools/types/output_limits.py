"""The limits of what goes into a tool and comes out of it, each in one place. A record, a message between processes and
a conversation take a value of these limits together with their own members."""

from __future__ import annotations

from typing import Final

from oauthbroker.plugins import JsonLimits

VALUE: Final = JsonLimits(256 * 1024, 64, 100_000)  # the arguments or the output of a call, or a model's answer
STATE: Final = JsonLimits(1_000_000, 64, 100_000)  # the value of an extension, or the blocks of a step
IN_EVENT: Final = JsonLimits(48 * 1024, 32, 10_000)  # the end of work that goes on; a larger output is kept beside it
INPUT: Final = JsonLimits(60 * 1024, 1, 1)  # the text of a request or message; the rest of 64 KiB is for its event
MESSAGE: Final = 1000  # characters of an error's message, where a tool has no limit of its own
SUGGESTION: Final = 8000  # characters: it may have a link
NAME: Final = 200  # characters of an error's name or code, of a call's id, and of a handle
READ: Final = 100_000  # characters of a foreign text
READ_BESIDE: Final = 16_000  # characters of a text beside a message, so that an error fits what a process may answer
