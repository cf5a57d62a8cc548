"""What `oauthbroker doctor` looks at where the store lies: permissions, room, locks; and how a check is made."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from oauthbroker.checkup.findings import Check, Finding
from oauthbroker.cli.refusals import HINTS, described
from oauthbroker.cli.text import shown
from oauthbroker.errors import BrokerError
from oauthbroker.store.place import NETWORK, file_system, flaws, locks_exclude, room_at

MOST_NAMED = 10
MEBIBYTE = 1024 * 1024
LITTLE, TOO_LITTLE = 200 * MEBIBYTE, 20 * MEBIBYTE
FEW_FILES, TOO_FEW_FILES = 10_000, 500


def data_of(root: str) -> Path:
    return Path(root) / "data"


def is_there(root: str) -> bool:
    """Whether somebody has made a store at `root`."""
    with suppress(FileNotFoundError):
        data_of(root).stat()
        return True
    return False


async def permissions(root: str) -> list[Finding]:
    """Owner and mode of everything below the store's root, and that there is a store."""
    if not is_there(root):
        todo = "Run `oauthbroker init`, or look at `store.root` if there was one."
        return [Finding("permissions", "failure", "There is no store yet.", todo, root)]
    found = list(flaws(Path(root)))
    todo = "Look who did that, then mend it: folders 0700, files 0600, owned by the user of the broker."
    said = [Finding("permissions", "failure", sentence(it.what), todo, shown(it.path)) for it in found[:MOST_NAMED]]
    if len(found) > MOST_NAMED:
        said.append(Finding("permissions", "failure", f"{len(found) - MOST_NAMED} more below {root}.", todo))
    return said or [
        Finding("permissions", "ok", "Everything below is a plain file of ours that nobody else reads.", "", root)
    ]


async def disk(root: str) -> list[Finding]:
    """Room for what has to be written."""
    if not is_there(root):
        return []
    room = room_at(Path(root))
    files = room.files_free if room.files_free is not None else FEW_FILES
    text = f"{room.bytes_free // MEBIBYTE} MiB" + (
        f" and {room.files_free} files" if room.files_free is not None else ""
    )
    todo = "Make room: without it no renewed token can be kept."
    if room.bytes_free < TOO_LITTLE or files < TOO_FEW_FILES:
        return [Finding("disk", "failure", f"Only {text} are free.", todo)]
    if room.bytes_free < LITTLE or files < FEW_FILES:
        return [Finding("disk", "warning", f"Only {text} are free.", todo)]
    return [Finding("disk", "ok", f"{text} are free.")]


async def locks(root: str) -> list[Finding]:
    """Whether locks keep processes apart on this file system."""
    if not is_there(root):
        return []
    kind, todo = file_system(data_of(root)), "Use a local disk."
    if locks_exclude(data_of(root)) is False:
        return [Finding("locks", "failure", "File locks do not exclude each other here.", todo, kind)]
    if kind in NETWORK:
        return [
            Finding(
                "locks",
                "warning",
                "A network file system: two machines would not see each other's locks.",
                todo,
                kind,
            )
        ]
    return [Finding("locks", "ok", "File locks work.", "", kind)]


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


async def guarded(check: Check, step: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    """What the step finds or, where it breaks, why, in words of ours."""
    try:
        return await step()
    except BrokerError as error:
        why, code = str(error), error.code
        todo = HINTS.get(code, "")
    except OSError as error:
        why, todo = (
            f"The system says {errno.errorcode.get(error.errno or 0, 'OSError')}.",
            "Look at that path and its owner.",
        )
    except Exception as crash:  # noqa: BLE001  (a crash's own words may quote what was being worked on)
        why, todo = f"This check broke: {described(crash)}.", "Please report this."
    return [Finding(check, "failure", why, todo)]
