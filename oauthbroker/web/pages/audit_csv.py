"""The audit log as a CSV file for an operator's spreadsheet, in which no cell is a formula."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import islice

from starlette.responses import StreamingResponse

from oauthbroker.audit.lines import AuditLine
from oauthbroker.records.grant_view import GrantView
from oauthbroker.web.middleware.security_headers import security_headers

MOST_LINES = 20_000
COLUMNS = ("time", "type", "app", "subject", "account", "grant", "genuine", "slot", "seq", "details")
_AT_ONCE = 200  # lines of one piece, between which others run
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also in full width


def csv_response(lines: Sequence[AuditLine], known: Mapping[str, GrantView]) -> StreamingResponse:
    """Return the file. `known` are the grants of the lines, by their names in the log."""
    headers = {**security_headers(), "content-disposition": 'attachment; filename="audit.csv"'}
    return StreamingResponse(_pieces(lines, known), headers=headers, media_type="text/csv; charset=utf-8")


async def _pieces(lines: Sequence[AuditLine], known: Mapping[str, GrantView]) -> AsyncIterator[str]:
    yield "\ufeff" + _written([COLUMNS])  # the mark by which spreadsheets know UTF-8
    rows = (_row(line, known.get(line.grant or "")) for line in lines)
    while piece := _written(islice(rows, _AT_ONCE)):
        yield piece
        await asyncio.sleep(0)


def _row(line: AuditLine, grant: GrantView | None) -> tuple[object, ...]:
    details = [f"{name}={value}" for name, value in line.details]
    subject, account = (grant.subject, grant.account_name) if grant is not None else ("", "")
    genuine = {True: "yes", False: "no", None: "unknown"}[line.genuine]
    app, name = line.fields.get("app", ""), line.grant or ""
    return line.at, line.type, app, subject, account, name, genuine, line.slot, line.seq, "; ".join(details)


def _written(rows: Iterator[tuple[object, ...]] | Sequence[tuple[object, ...]]) -> str:
    file = io.StringIO()
    csv.writer(file).writerows([_cell(value) for value in row] for row in rows)
    return file.getvalue()


def _cell(value: object) -> str:
    """Return a text that a spreadsheet shows and does not compute."""
    said = "" if value is None else str(value)
    return f"'{said}" if said.lstrip(" ").startswith(_FORMULA) else said
