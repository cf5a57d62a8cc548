"""The entities in the files and folders that a configuration names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from oauthbroker import BrokerError
from oauthbroker.flowtools.entities.definition import Entity, load_entity
from oauthbroker.flowtools.specification.given_files import given_files, read_given


def entities_in(paths: Iterable[Path]) -> list[Entity]:
    """Load entities. Raises FlowRefused for a flaw, and ValueError for a path without a readable file."""
    try:
        return [load_entity(read_given(each), str(each)) for each in given_files(list(paths))]
    except BrokerError as error:
        note = error.note
    raise ValueError(note)
