"""Make the checks of `oauthbroker doctor` on the store's place: permissions, space, locks; and on the plug-ins of the
running broker. `guarded` runs a check."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path

from oauthbroker.cli.health import ask, findings_in
from oauthbroker.cli.output.tables import shown
from oauthbroker.core.errors import BrokerError
from oauthbroker.core.progress import Progress, unseen
from oauthbroker.core.refused import described
from oauthbroker.core.sentences import sentence
from oauthbroker.diagnostics.findings import Check, Finding
from oauthbroker.model.settings import Settings
from oauthbroker.store.file.place_checks import NETWORK, StoreProblem, file_system, locks_exclude, problems, space_at

Step = Callable[[], Awaitable[list[Finding]]]
MOST_NAMED = 10
MEBIBYTE = 1024 * 1024
LITTLE, TOO_LITTLE = 200 * MEBIBYTE, 20 * MEBIBYTE
FEW_FILES, TOO_FEW_FILES = 10_000, 500


def data_of(root: str) -> Path:
    return Path(root) / "data"


def is_there(root: str) -> bool:
    """Return whether a store was made at `root`."""
    with suppress(FileNotFoundError):
        data_of(root).stat()
        return True
    return False


def lost(kinds: Iterable[str]) -> list[Finding]:
    """Report kinds whose folders a store with records lacks."""
    hint = "Restore it from a backup. Only if it had no records, make it empty (0700)."
    return [Finding("permissions", "failure", "Missing.", hint=hint, about=f"data/{kind}") for kind in kinds]


async def permissions(root: str, files: Iterable[str], progress: Progress = unseen) -> list[Finding]:
    """Check that a store exists, the owner and mode of everything below its root, and that not every user of this
    machine can read one of the files that open it."""
    return [*_below(root, progress), *_of_open(files)]


def _below(root: str, progress: Progress) -> list[Finding]:
    if not is_there(root):
        hint = "Run `oauthbroker init`. If there was one, put it back or correct `store.root`: a new one is empty."
        return [Finding("permissions", "failure", "There is no store yet.", hint=hint, about=root)]
    found, count = list[StoreProblem](), 0
    for each in problems(Path(root), progress):
        count += 1
        found = sorted([*found, each], key=lambda it: it.path)[:MOST_NAMED]
    hint = "Look who did that, then fix it: folders 0700, files 0600, owned by the user of the broker."
    listed = [Finding("permissions", "failure", sentence(it.what), hint=hint, about=shown(it.path)) for it in found]
    if count > len(found):
        listed.append(Finding("permissions", "failure", f"{count - len(found)} more below {root}.", hint=hint))
    return listed or [
        Finding("permissions", "ok", "Everything below is a plain file that only we can read.", about=root)
    ]


async def disk(root: str) -> list[Finding]:
    """Check the free space for writes."""
    if not is_there(root):
        return []
    free = space_at(Path(root))
    files = free.files_free if free.files_free is not None else FEW_FILES
    also = f" and {free.files_free} files" if free.files_free is not None else ""
    text = f"{free.bytes_free // MEBIBYTE} MiB{also}"
    hint = "Make space: without it no refreshed token can be stored."
    if free.bytes_free < TOO_LITTLE or files < TOO_FEW_FILES:
        return [Finding("disk", "failure", f"Only {text} are free.", hint=hint)]
    if free.bytes_free < LITTLE or files < FEW_FILES:
        return [Finding("disk", "warning", f"Only {text} are free.", hint=hint)]
    return [Finding("disk", "ok", f"{text} are free.")]


async def locks(root: str) -> list[Finding]:
    """Check that file locks exclude other processes on this file system."""
    if not is_there(root):
        return []
    kind, hint = file_system(data_of(root)), "Use a local disk."
    if locks_exclude(data_of(root)) is False:
        return [Finding("locks", "failure", "File locks do not exclude each other here.", hint=hint, about=kind)]
    if kind in NETWORK:
        what = "A network file system: two machines would not see each other's locks."
        return [Finding("locks", "warning", what, hint=hint, about=kind)]
    return [Finding("locks", "ok", "File locks work.", about=kind)]


async def plugins(settings: Settings) -> list[Finding]:
    """Ask the running broker what its plug-ins found: only a plug-in that is open can say it."""
    if not settings.plugins:
        return []
    answered = await asyncio.to_thread(ask, settings.listen_host.strip("[]"), settings.listen_port)
    if answered is None:
        return [Finding("plugins", "ok", f"Not asked: no broker answers on port {settings.listen_port}.")]
    found = [Finding("plugins", "failure", text, hint=hint, about=code) for code, text, hint in findings_in(answered)]
    return found or [Finding("plugins", "ok", f"No finding of {', '.join(settings.plugins)}.")]


async def guarded(check: Check, step: Step) -> list[Finding]:
    """Return the step's findings or, if it raises, the reason in our own words."""
    try:
        return await step()
    except BrokerError as error:
        why, hint = str(error), ""
    except OSError as error:
        why = f"The system says {errno.errorcode.get(error.errno or 0, 'OSError')}."
        return [
            Finding(check, "failure", why, hint="Look at that path, its owner and its mount.", about=path_of(error))
        ]
    except Exception as crash:  # noqa: BLE001  (the exception's own text may quote a secret)
        why, hint = f"This check broke: {described(crash)}.", "Please report this."
    return [Finding(check, "failure", why, hint=hint)]


def path_of(error: OSError) -> str:
    """Return the path that the system refused; empty where it names none."""
    return os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else ""


def _of_open(files: Iterable[str]) -> list[Finding]:
    """Report those files of keys, and of the tokens of key services, that every user of this machine can read."""
    what, hint = "Every user of this machine can read a file that opens the store.", "Take the right from other users."
    return [Finding("permissions", "warning", what, hint=hint, about=file) for file in files if _is_open(file)]


def _is_open(file: str) -> bool:
    with suppress(OSError):
        return bool(Path(file).stat().st_mode & stat.S_IROTH)
    return False
