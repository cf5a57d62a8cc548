"""What a refusal says of a database: its address, and never a part of the password."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from oauthbroker.core.secret import Secret
from oauthbroker.store.postgres.connect_failures import NOT_A_URL, connect_failure, is_lasting, shown_address
from oauthbroker.store.postgres.connection_pool import LostConnectionError, failure

LEFT, RIGHT = "Zq7Left", "Zq7Right"


@pytest.mark.parametrize("sign", ["@", "/", "?", "#", ":", "%", "@/", "/@", "/?", "@:", "#@", "[", "/1?"])
def test_a_password_that_is_not_percent_encoded_is_not_shown(sign: str) -> None:
    shown = shown_address(Secret(f"postgresql://me:{LEFT}{sign}{RIGHT}@db.example/tokens"))
    assert LEFT not in shown
    assert RIGHT not in shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:p%40ss@db.example/tokens", "me@db.example:5432/tokens"),
        ("postgresql://me:p@[::1]:5433/tokens", "me@::1:5433/tokens"),
        ("postgresql://me@one:1,two:2/tokens", "me@one,two:1,2/tokens"),
        ("postgresql:///tokens", "localhost:5432/tokens"),
    ],
)
def test_an_address_is_shown_without_the_password(url: str, shown: str) -> None:
    assert shown == shown_address(Secret(url))


def test_a_refusal_of_such_a_url_names_the_encoding() -> None:
    unknown = psycopg.OperationalError("[Errno -2] Name or service not known: failed to resolve host 'x'")
    assert "@ as %40" in connect_failure(unknown)
    assert "@ as %40" in NOT_A_URL


@pytest.mark.parametrize(
    ("url", "says"),
    [
        (f"postgresql://me:{LEFT}%{RIGHT}@db.example/tokens", "write % as %25"),
        (f"postgresql://me:{LEFT}@db.example/tokens?sslmod=require", "an unknown parameter sslmod: write sslmode"),
        (f"postgresql://me:{LEFT}@db.example/tokens?x=1", "an unknown parameter: correct what follows its ?"),
        (f"postgresql://me:{LEFT}/?{RIGHT}=1@db.example/tokens", "in its password write ? as %3F"),
        (f"https://{LEFT}", NOT_A_URL),
    ],
)
def test_a_mistyped_url_is_refused_with_its_fault_and_without_the_password(url: str, says: str) -> None:
    with pytest.raises(psycopg.ProgrammingError) as refused:
        conninfo_to_dict(url)
    failed = failure(refused.value)
    assert (True, True) == (says in failed.note, failed.lasting), failed.note
    assert LEFT not in failed.note
    assert RIGHT not in failed.note


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            'no pg_hba.conf entry for host "192.0.2.1", user "me", database "tokens", no encryption',
            "set sslmode=require",
        ),
        ('no pg_hba.conf entry for host "192.0.2.1", user "me", database "tokens", SSL encryption', "add a line there"),
        ('no pg_hba.conf entry for host "[local]", user "me", database "tokens", no encryption', "add a line there"),
        ("connection requires a valid client certificate", "set sslcert=FILE and sslkey=FILE"),
        ('certificate authentication failed for user "me"', "of another user"),
        ("SSL error: tlsv1 alert unknown ca", "does not accept the client certificate"),
        ('private key file "key.pem" has group or world access', "run chmod 600 FILE"),
        ('certificate present, but not private key file "postgresql.key"', "correct sslkey"),
        ('root certificate file "root.crt" does not exist', "set sslrootcert=FILE"),
        ("SSL error: certificate verify failed", "its certificate is not accepted"),
        ("server does not support SSL, but SSL was required", "correct sslmode"),
        ('invalid sslmode value: "on"', "such as sslmode"),
        ('permission denied for database "tokens"', "grant CONNECT"),
        ("sorry, too many clients already", "all its connections are taken"),
        ("remaining connection slots are reserved for roles with the SUPERUSER attribute", "raise max_connections"),
        ('too many connections for role "me"', "the user's limit"),
        ("connections allowed (max_client_conn)", "all its connections are taken"),
        ('role "me" is not permitted to log in', "alter role NAME login"),
        ('Peer authentication failed for user "me"', "only the system's user of that name"),
        ('database "tokens" is not currently accepting connections', "allow_connections true"),
        ("session is read-only", "name the primary"),
        ("server is in hot standby mode", "name the primary"),
        ("the database system is not yet accepting connections", "once it is up"),
    ],
)
def test_a_refusal_to_connect_says_what_to_do(text: str, says: str) -> None:
    assert says in connect_failure(psycopg.OperationalError(f"connection failed: FATAL: {text}"))


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (psycopg.OperationalError("the connection is closed"), "the connection was lost"),
        (psycopg.OperationalError("the connection is lost"), "the connection was lost"),
        (psycopg.OperationalError("consuming input failed: server closed the connection"), "the connection was lost"),
        (errors.AdminShutdown("terminating connection due to administrator command"), "the connection was lost"),
        (errors.CannotConnectNow("the database system is shutting down"), "it starts or stops"),
    ],
)
def test_the_log_of_an_outage_has_words_for_its_cause_and_the_call_may_be_repeated(
    error: psycopg.Error, says: str
) -> None:
    failed = failure(error)
    assert (True, False, True) == (says in failed.note, failed.lasting, isinstance(failed, LostConnectionError))


@pytest.mark.parametrize(
    ("text", "lasting"),
    [
        ('password authentication failed for user "me"', True),
        ('database "nowhere" does not exist', True),
        ('role "mallory" does not exist', True),
        ("fe_sendauth: no password supplied", True),
        ("failed to resolve host 'nowhere.invalid': [Errno -2] Name or service not known", True),
        ("server does not support SSL, but SSL was required", True),
        ("failed to resolve host 'db': [Errno -3] Temporary failure in name resolution", False),
        ('could not translate host name "db" to address: Try again', False),
        ('connection to server at "192.0.2.1", port 5432 failed: Connection refused', False),
        ('connection to server on socket "/run/.s.PGSQL.5432" failed: No such file or directory', False),
        ("connection timeout expired", False),
        ("the database system is starting up", False),
        ("the database system is shutting down", False),
        ("sorry, too many clients already", False),
        ("remaining connection slots are reserved for roles with the SUPERUSER attribute", False),
        ("session is read-only", False),
        ("the database system is not yet accepting connections", False),
        ('role "me" is not permitted to log in', True),
        ('too many connections for role "me"', False),
        ("SSL connection has been closed unexpectedly", False),
        ("SSL SYSCALL error: EOF detected", False),
        ("server closed the connection unexpectedly", False),
        ('at "one": Connection refused; at "two": password authentication failed for user "me"', False),
    ],
)
def test_only_a_cause_that_time_does_not_mend_is_lasting(text: str, lasting: bool) -> None:
    error = psycopg.OperationalError(f"connection failed: FATAL: {text}")
    assert lasting is is_lasting(error) is failure(error).lasting
