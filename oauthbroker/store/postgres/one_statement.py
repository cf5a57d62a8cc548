"""Run one statement on a connection with libpq's calls, without a cursor, which costs as much as the rest.

A statement that a connection runs again and again is prepared there: to parse and plan it costs the server more than to
run it. Behind a pooler in transaction mode each one has another session. So its name is a digest of its text, and a
connection whose session lacks it, or has it from another client, prepares none from then on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final
from weakref import WeakKeyDictionary

import psycopg
from psycopg import generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

_VALUE: Final = re.compile(r"%\((\w+)\)s")
_STATEMENTS: Final = 256  # more than the store has
_RUNS: Final = 3  # of a statement on one connection, then it is prepared there
_OF_A_POOLER: Final = {b"26000", b"42P05"}  # there is no prepared statement of that name, or there is one
_DONE: Final = {ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK}
_runs = WeakKeyDictionary[psycopg.AsyncConnection[Any], dict[bytes, int] | None]()  # None: nothing is prepared


async def rows_of(
    connection: psycopg.AsyncConnection[Any], statement: str, values: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    """Run a statement whose values are written `%(name)s`, and return its rows. Raises psycopg.Error."""
    text, names = _numbered(statement)
    adapter = Transformer(connection)
    sent = adapter.dump_sequence([values[name] for name in names], [PyFormat.AUTO] * len(names))
    prepared = await _prepared(connection, text, adapter.types or ())
    if prepared:
        connection.pgconn.send_query_prepared(prepared, sent, adapter.formats, Format.BINARY)
    else:
        connection.pgconn.send_query_params(text, sent, adapter.types, adapter.formats, Format.BINARY)
    result = await _result(connection)
    if prepared and result.error_field(psycopg.pq.DiagnosticField.SQLSTATE) in _OF_A_POOLER:
        _runs[connection] = None
        return await rows_of(connection, statement, values)
    if result.status not in _DONE:
        raise psycopg.errors.error_from_result(result)
    adapter.set_pgresult(result)
    return adapter.load_rows(0, result.ntuples, tuple)


async def _prepared(connection: psycopg.AsyncConnection[Any], text: bytes, types: Sequence[int]) -> bytes:
    """Return the name that the connection has prepared the statement under; empty before it has run some times."""
    runs = _runs.setdefault(connection, {})
    if runs is None:
        return b""
    name = _name(text, tuple(types))
    done = runs.get(name, 0)
    if done == _RUNS:
        return name
    if done == _RUNS - 1:
        connection.pgconn.send_prepare(name, text, types)
        result = await _result(connection)
        if result.status not in _DONE:  # a pooler, or the plain statement says why; one that was cancelled ends here
            if isinstance(error := psycopg.errors.error_from_result(result), psycopg.errors.QueryCanceled):
                raise error
            _runs[connection] = None
            return b""
    runs[name] = done + 1
    return b""


async def _result(connection: psycopg.AsyncConnection[Any]) -> PGresult:
    result: PGresult = (await connection.wait(generators.execute(connection.pgconn)))[-1]
    return result


@lru_cache(_STATEMENTS)
def _numbered(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the statement with the values as libpq numbers them, and their names in that order."""
    names = tuple(dict.fromkeys(_VALUE.findall(statement)))
    return _VALUE.sub(lambda found: f"${names.index(found[1]) + 1}", statement).encode(), names


@lru_cache(_STATEMENTS * 4)
def _name(text: bytes, types: tuple[int, ...]) -> bytes:
    return b"oauthbroker_%s" % sha256(b"%s %r" % (text, types)).hexdigest()[:32].encode()
