"""Say why a connection to PostgreSQL failed, and name the database without its password.

The words are ours, because the text of a failure may quote the URL.
"""

from __future__ import annotations

import re
from typing import Final

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict

from oauthbroker.core.secret import Secret
from oauthbroker.core.spelling import nearest

_ENCODED: Final = "in its password write @ as %40 and / as %2F"
NOT_A_URL: Final = f"not a database's URL: write postgresql://USER:PASSWORD@HOST:5432/NAME?PARAMETERS; {_ENCODED}"
FULL: Final = "too many (clients|connections)|connection slots are reserved|connections allowed"
SILENT: Final = "no statement is answered"
NO_STATEMENT: Final = "it accepts connections and answers no statement: look in pg_locks for a lock, or behind a pooler"
_REASONS: Final = (
    (SILENT, NO_STATEMENT),
    (FULL, "all its connections are taken: end idle ones, raise max_connections or the user's limit"),
    ("root certificate file", "there is no file of its authority: set sslrootcert=FILE, or sslrootcert=system"),
    ("valid client certificate", "it asks for a client certificate: set sslcert=FILE and sslkey=FILE in the URL"),
    ("private key file", "the key of its client certificate cannot be used: correct sslkey, and run chmod 600 FILE"),
    ("certificate authentication failed", "the client certificate is of another user: correct the user or sslcert"),
    ("alert (unknown ca|.*certificate)", "it does not accept the client certificate: correct sslcert"),
    ("refused", "it refuses connections: start PostgreSQL there, or correct the host and port"),
    ("(resolve|translate) host", f"no such host: correct its name; {_ENCODED}"),
    ("No such file", "no server has its socket there: start PostgreSQL, or correct the host"),
    ("password authentication failed", "it refuses the user or password: correct them in the URL"),
    ("no password supplied", "it asks for a password: write it into the URL"),
    (r'pg_hba\.conf entry for host "[^[].*no encryption', "its pg_hba.conf wants TLS: set sslmode=require"),
    (r"pg_hba\.conf", "its pg_hba.conf does not let this user in from here: add a line there"),
    ("permission denied for database", "this user may not connect to it: grant CONNECT on the database"),
    ("not permitted to log in", "this user may not log in: run alter role NAME login"),
    ("(Peer|Ident) authentication failed", "its socket lets in only the system's user of that name: correct the user"),
    ("not currently accepting", "it accepts no connections: run alter database NAME allow_connections true"),
    ("session is read-only|in hot standby mode", "it is a read-only standby: name the primary in the URL"),
    ('database ".*" does not exist|no such database', "there is no such database: run createdb, or correct its name"),
    ('role ".*" does not exist', "there is no such user: run createuser, or correct its name"),
    ("timeout|timed out", "it does not answer in time: check the host, the port and firewalls"),
    (r"invalid \w+ value", "a parameter of the URL, such as sslmode, has a wrong value: correct it"),
    ("starting up|shutting down|recovery mode|not yet accepting", "it starts or stops: calls work again once it is up"),
    (
        "has been closed|closed the connection|connection is (closed|lost)|terminating|consuming input|sending",
        "the connection was lost: look whether it has stopped, or the network was cut",
    ),
    ("certificate", "its certificate is not accepted: correct sslmode or sslrootcert"),
    ("SSL", "it and the URL's sslmode do not agree on TLS: correct sslmode"),
)
_PASSING: Final = re.compile(
    f"{FULL}|{SILENT}|refused|No such file|timeout|timed out|unexpected|SYSCALL|has been closed|starting up"
    "|shutting down|session is read-only|in hot standby mode|recovery mode|not yet accepting|connection is closed"
    "|connection is lost|terminating|consuming input|sending|[Tt]emporary failure|[Tt]ry again|EAI_AGAIN"
)


def url_failure(error: psycopg.ProgrammingError) -> str:
    """Return the fault of a database's URL, and the remedy. Of the typed text it shows at most the name of a
    parameter, if that is nearly a known one: another may be of a password."""
    text = str(error)
    if "percent-encoded" in text:
        return f"not a database's URL: write % as %25; {_ENCODED}"
    if (unknown := re.search('URI query parameter: "(.*)"', text)) is None:
        return NOT_A_URL
    known = [option.keyword.decode() for option in pq.Conninfo.get_defaults()]
    close = nearest(unknown[1], known)
    named = (
        f" {unknown[1]}: write {close}" if close else ": correct what follows its ?, and in its password write ? as %3F"
    )
    return f"the database's URL has an unknown parameter{named}"


def connect_failure(error: psycopg.Error) -> str:
    """Return the reason and what to do; an empty text for a failure that is not about connecting."""
    text = str(error)
    return next((reason for pattern, reason in _REASONS if re.search(pattern, text)), "")


def is_lasting(error: psycopg.Error) -> bool:
    """Return whether time alone does not mend the cause. Of several hosts one that may come back is enough."""
    return not _PASSING.search(str(error)) and connect_failure(error) != ""


def shown_address(url: Secret) -> str:
    """Return `user@host:port/name` of a URL, or an empty text where it is none, or where a part may be of the password.

    A password whose @ or / is not percent-encoded goes on in the host, the port or the name of the database.
    """
    try:
        parts = conninfo_to_dict(url.reveal())
    except psycopg.ProgrammingError:
        return ""
    user = f"{parts['user']}@" if parts.get("user") else ""
    place = f"{parts.get('host') or 'localhost'}:{parts.get('port') or 5432}/{parts.get('dbname') or ''}"
    return "" if "@" in place or re.search("[^0-9,]", str(parts.get("port") or "")) else user + place
