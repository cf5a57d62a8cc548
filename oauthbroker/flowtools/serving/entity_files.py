"""The entities in the files and folders that a configuration names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from oauthbroker import BrokerError
from oauthbroker.flowtools.entities.definition import Entity, load_entity
from oauthbroker.flowtools.specification.input_files import input_files, read_input


def entities_in(paths: Iterable[Path]) -> list[Entity]:
    """Load entities. Raises FlowRefused for a problem, and ValueError for a path without a readable file."""
    try:
        return [load_entity(read_input(each), str(each)) for each in input_files(list(paths))]
    except BrokerError as error:
        note = error.note
    raise ValueError(note)
