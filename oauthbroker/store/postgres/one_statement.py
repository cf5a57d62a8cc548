"""Run one statement on a connection with libpq's calls, without a cursor, which costs as much as the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import psycopg
from psycopg import generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format

_VALUE: Final = re.compile(r"%\((\w+)\)s")
_STATEMENTS: Final = 256  # more than the store has


async def rows_of(
    connection: psycopg.AsyncConnection[Any], statement: str, values: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Run a statement whose values are written `%(name)s`, and return its rows. Raises psycopg.Error."""
    text, names = _numbered(statement)
    adapter = Transformer(connection)
    sent = adapter.dump_sequence([values[name] for name in names], [PyFormat.AUTO] * len(names))
    connection.pgconn.send_query_params(text, sent, adapter.types, adapter.formats, Format.BINARY)
    result = (await connection.wait(generators.execute(connection.pgconn)))[-1]
    if result.status not in {ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK}:
        raise psycopg.errors.error_from_result(result)
    adapter.set_pgresult(result)
    return adapter.load_rows(0, result.ntuples, tuple)


@lru_cache(_STATEMENTS)
def _numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the statement with the values as libpq numbers them, and their names in that order."""
    names = tuple(dict.fromkeys(_VALUE.findall(statement)))
    return _VALUE.sub(lambda found: f"${names.index(found[1]) + 1}", statement).encode(), names
