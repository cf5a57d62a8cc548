"""The marker of a store that takes part in a migration or was restored from an archive. A store with a mark does not
open. Format: docs/store-format.md."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Final

from oauthbroker.core.dataclasses import asdict, dataclass
from oauthbroker.core.errors import BrokerError, Code

FORMAT: Final = "oab-move-1"
MOST_BYTES: Final = 4096


class MigrationState(StrEnum):
    """The state of a store in a migration. The source is CLOSING until its target is complete, and CLOSED from then on.

    A store that is read from an archive is IMPORTING until it is complete, then RESTORED until an operator accepts it.
    """

    ARRIVING = "arriving"
    CLOSING = "closing"
    CLOSED = "closed"
    IMPORTING = "importing"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationMarker:
    """The note that a store keeps about its migration. `move` is random, and the same at both ends. `here` and `there`
    name the two stores as commands take them, without a password. Of an import, `move` is the archive's id, and `there`
    the time of the archive."""

    move: str
    state: MigrationState
    here: str
    there: str
    at: str

    def encoded(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True).encode() + b"\n"

    @classmethod
    def decoded(cls, text: bytes) -> MigrationMarker:
        """Raises `recordCorrupt` for a text that `encoded` does not write."""
        try:
            found = json.loads(text)
            if found.pop("format") == FORMAT and all(isinstance(each, str) for each in found.values()):
                return cls(**{**found, "state": MigrationState(found["state"])})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise BrokerError(Code.RECORD_CORRUPT, note="the marker of a migration is damaged: restore it from a backup")

    def refusal(self) -> BrokerError:
        """Return the error that opening the store answers, with what to do."""
        code = Code.STORE_ROLLED_BACK if self.state is MigrationState.RESTORED else Code.STORE_CLOSED
        match self.state:
            case MigrationState.ARRIVING:
                note = f"the copy is not finished: run `oauthbroker store copy {self.there} {self.here} --cut-over`"
            case MigrationState.CLOSING:
                note = (
                    f"it migrates to {self.there}: finish with `oauthbroker store copy {self.here} {self.there} "
                    f"--cut-over`, or go back with `oauthbroker store reopen {self.here}`"
                )
            case MigrationState.CLOSED:
                note = f"it was migrated to {self.there}: to undo that, read `oauthbroker store reopen {self.here}`"
            case MigrationState.IMPORTING:
                note = (
                    f"the import of the archive of {self.there} is not finished: repeat `oauthbroker store import`, or "
                    "remove the place"
                )
            case MigrationState.RESTORED:
                note = (
                    f"it was restored from the archive of {self.there}: `oauthbroker store accept-restore` says what "
                    "that means"
                )
        return BrokerError(code, note=note)
