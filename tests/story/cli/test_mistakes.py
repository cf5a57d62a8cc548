"""The mistakes of first days, each made once: the printed text says the true cause, the place, and what to do next.

A row is the mistake and three texts that have to be printed: cause, place, remedy. No answer holds a secret or a traceback
of ours, and none is longer than a screen.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psycopg
import pyrage
import pytest

import oauthbroker.flowtools
from oauthbroker.cli.output.error_output import PAGE, anchor_of
from oauthbroker.client import BrokerError, Code, Runtime, Turn
from tests.kit.cli import BROKER, SECRET, Desk, Done, environment, free_port
from tests.kit.served_api import Service, make_key, user_of
from tests.kit.shared_server import SharedServer, shared_server
from tests.story.cli.mistakes_kit import (
    DATABASE,
    ISSUER,
    PASSWORD,
    ROWS,
    TURN_TOKEN,
    Stage,
    database,
    row,
    settings,
    tls_database,
    typed,
    written,
)

ANYTHING = ""

# fmt: off
# Databases
database("a port where no PostgreSQL listens", "postgresql://me:{password}@127.0.0.1:{port}/tokens", "refuses connections", "me@127.0.0.1:", "start PostgreSQL there")
database("a host that there is not", "postgresql://me:{password}@nowhere.invalid/tokens", "no such host", "me@nowhere.invalid:5432/tokens", "correct its name")
database("a URL of another database", "mysql://me:{password}@127.0.0.1/tokens", "not a database's URL", f"env:{DATABASE}", "write postgresql://")
database("a variable that is not set", "", "has no URL of a database", DATABASE, "set it")
database("a sslmode that there is not", "postgresql://me:{password}@127.0.0.1/tokens?sslmode=on", "such as sslmode, has a wrong value", "me@127.0.0.1:5432/tokens", "correct it")
database("a URL from a file with Windows line ends", "postgresql://me:{password}@127.0.0.1/tokens\r", "begins or ends with white space", f"variable {DATABASE}", "remove it")
database("a socket that there is not", "postgresql:///tokens?host=/nowhere", "no server has its socket there", "/nowhere:5432/tokens", "start PostgreSQL")


@row("a database that there is not", "no such database", "/nowhere", "createdb")
def _(at: Stage) -> Done:
    at.database(at.postgres.url("nowhere").reveal())
    return at.desk.type("init")


@row("a migration of a database that there is not", "no such database", "/nowhere", "createdb")
def _(at: Stage) -> Done:
    at.database(at.postgres.url("nowhere").reveal())
    return at.desk.type("store", "migrate")


@row("a copy to a database that there is not", "no such database", "/nowhere", "createdb")
def _(at: Stage) -> Done:
    at.ready()
    at.patch.setenv(DATABASE, at.postgres.url("nowhere").reveal())
    return at.desk.type("store", "copy", "store", f"env:{DATABASE}")


@row("a user that the database does not know", "no such user", f"env:{DATABASE}", "createuser")
def _(at: Stage) -> Done:
    at.database(at.postgres.url().reveal().replace("postgres@", "nobody@"))
    return at.desk.type("init")


@row("a wrong database password", "it refuses the user or password", f"env:{DATABASE}", "correct them in the URL")
def _(at: Stage) -> Done:
    at.postgres.run("create role locked login password 'right'")
    rules = at.postgres.folder / "data" / "pg_hba.conf"
    rules.write_text(f"local all locked scram-sha-256\n{rules.read_text()}")
    at.postgres.run("select pg_reload_conf()")
    for _ in range(200):  # until new sessions see the rule
        with suppress(psycopg.OperationalError), closing(psycopg.connect(named(at, "postgres", "locked"))):
            time.sleep(0.05)
            continue
        break
    at.database(named(at, "postgres", f"locked:{PASSWORD}"))
    return at.desk.type("init")


def named(at: Stage, name: str, user: str) -> str:
    return at.postgres.url(name).reveal().replace("postgres@", f"{user}@")


def over_tls(name: str, rule: str, sslmode: str, *says: str) -> None:
    def make(at: Stage) -> Done:
        with tls_database(at.desk.folder, rule) as place:
            at.database(f"postgresql://postgres:{PASSWORD}@{place}?sslmode={sslmode}")
            return at.desk.type("init")

    row(name, *says)(make)


over_tls("a database that takes TLS only", "trust", "disable", "wants TLS", "postgres@127.0.0.1:", "set sslmode=require")
over_tls("a database that asks for a client certificate", "trust clientcert=verify-ca", "require", "asks for a client certificate", "postgres@127.0.0.1:", "set sslcert=FILE and sslkey=FILE in the URL")
over_tls("a database whose authority is not named", "trust", "verify-full", "no file of its authority", "postgres@127.0.0.1:", "set sslrootcert=FILE")


@row("a role that may not connect", "may not connect", f"env:{DATABASE}", "grant CONNECT")
def _(at: Stage) -> Done:
    at.postgres.empty_database("shut")
    for statement in ("create role shut login", "revoke connect on database shut from public"):
        at.postgres.run(statement)
    at.database(named(at, "shut", "shut"))
    return at.desk.type("init")


@row("a role without rights", "storeUnavailable", "the database user lacks a right", "run the command with the URL of their owner, or of the owner of the database", f"env:{DATABASE}")
def _(at: Stage) -> Done:
    at.postgres.run("create role bare login")
    at.postgres.empty_database("bare")
    at.database(named(at, "bare", "bare"))
    return at.desk.type("init")


@row("tables that were never made", "no store yet", f"env:{DATABASE}", "oauthbroker init")
def _(at: Stage) -> Done:
    at.postgres.empty_database("unmigrated")
    at.ready()
    at.database(at.postgres.url("unmigrated").reveal())
    return at.desk.type("grants", "list")


@row("a database that only answers reads", "read-only, perhaps a standby", "/standby", "name the primary")
def _(at: Stage) -> Done:
    at.postgres.empty_database("standby")
    at.database(at.postgres.url("standby").reveal())
    assert 0 == at.desk.type("init").code
    at.postgres.run("alter database standby set default_transaction_read_only = on")
    return at.desk.type("secrets", "set", "mail", "client_secret", stdin="value")


@row("the driver of PostgreSQL is not installed", "PostgreSQL needs", f"env:{DATABASE}", 'pip install "oauthbroker[postgres]"')
def _(at: Stage) -> Done:
    at.patch.setattr("oauthbroker.wiring.storage.find_spec", lambda _: None)
    at.database("postgresql://127.0.0.1/tokens")
    return at.desk.type("init")


# Keys
def key(name: str, spoil: Callable[[Desk], object], *says: str, words: str = "grants list") -> None:
    def make(at: Stage) -> Done:
        at.ready()
        spoil(at.desk)
        return at.desk.type(*words.split())

    row(name, *says)(make)


def other_key(desk: Desk) -> None:
    shutil.move("store", "first")
    desk.key_file.unlink()
    assert 0 == desk.type("init").code
    shutil.rmtree("store")
    shutil.move("first", "store")


def unmade(_: Desk) -> None:
    shutil.rmtree("store")
    shutil.rmtree("keys")


def at_store(*names: str) -> Path:
    return Path("store", "data", *names)


key("a key file that is gone", lambda desk: desk.key_file.unlink(), "there is no key file", "{key}", "Put the key file back. If it is lost, ")
key("a store that was never made", unmade, "There is no store yet. Run: ", "{key}", "oauthbroker init")
key("a key of the wrong length", lambda desk: desk.key_file.write_text("abc"), "not a key file", "{key}", "Provide the key file")
key("the key of another store", other_key, "wrapped for another key", "{key}", "Provide the key file")
key("a key file that others may read", lambda desk: desk.key_file.chmod(0o644), "the key file is open to others", "{key}", "Correct its owner and mode")
key("a key folder that all may write to", lambda desk: desk.key_file.parent.chmod(0o777), "all users may write to the folder", "{key}", "Correct its owner and mode")
key("a store's folder that others may read", lambda _: at_store().chmod(0o755), "data is open to others", "store: {store}", "Correct its owner and mode")
key("a folder of records that others may read", lambda _: at_store("locks").mkdir(0o755), "locks is open to others", "store: {store}", "Correct its owner and mode")
key("a keyring that others may read", lambda _: at_store("keyring").chmod(0o644), "keyring is open to others", "store: {store}", "Correct its owner and mode")
key("a second init", lambda _: None, "already exists", "store: {store}", "--if-missing", words="init")
key("a keyring that is none", lambda _: at_store("keyring").write_text("{}"), "the keyring is damaged", "store: {store}", "restore it from a backup")
settings("a key in the store", "../keys/broker.kek", "../store/broker.kek", "lie in the store", "broker.yaml:8:16", "Name a file outside")
settings("a key in the bundle", "../keys/broker.kek", "broker.kek", "lie in the bundle", "broker.yaml:8:16", "Name a file outside")


@row("a key that is gone, and init again", "its key file is missing", "{key}", "Provide the key file")
def _(at: Stage) -> Done:
    at.ready()
    at.desk.key_file.unlink()
    return at.desk.type("init")


# Extras
FLOWS = Path(oauthbroker.flowtools.__file__).parent / "example" / "tools"


def extra(name: str, module: str, words: str, *says: str) -> None:
    def make(at: Stage) -> Done:
        at.ready()
        typed = words.split()
        program = (  # a process of its own: in this one another test may have imported what needs the module
            f"import sys; sys.modules[{module!r}] = None\nfrom oauthbroker.cli import run\n"
            f"assert run([*{typed[:2]!r}, '--help']) == 0; print('helped'); sys.exit(run({typed!r}))"
        )
        env = environment(OAUTHBROKER_KEY_FILE=str(at.desk.key_file))
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=at.desk.folder, env=env, capture_output=True, text=True, check=False
        )
        assert "helped" in done.stdout, done.stderr
        return Done(done.returncode, "", done.stderr)

    row(name, *says)(make)


extra("backups without their extra", "pyrage", "store export x.age --recipient age1x", "Archives", "need", 'pip install "oauthbroker[backup]"')
extra("flow tools without their database", "sqlalchemy", "flow runs --database sqlite:///x.db", "cannot run here", "needs", 'pip install "oauthbroker[flowtools]"')
extra("flow tools without their expressions", "cel_expr_python", f"flow check {FLOWS}", "cannot run here", "needs", 'pip install "oauthbroker[flowtools]"')

TOOL = """\
apiVersion: agents.example.io/v1alpha1
kind: Tool
metadata: {name: weather}
spec: {entry: ./weather.py, exports: [{name: get, description: Weather., parameters: {type: object}}]}
"""


@row("tools without their extra", "Parameters need the extra", "tool.yaml:4:86 spec.exports[0].parameters", 'pip install "oauthbroker[tools]"')
def _(at: Stage) -> Done:
    at.patch.setitem(sys.modules, "jsonschema_rs", None)
    assert 0 == at.desk.type("tools", "run", "--help").code
    at.broker(more="  plugins: [tools]\n")
    at.desk.write("tool", TOOL)
    Path("config", "weather.py").write_text("handlers = {}\n")
    return at.desk.type("tools", "check")


# Typing
typed("a typo of a command", "grnats list", "No such command 'grnats'", ANYTHING, "Did you mean 'grants'?")
typed("a typo of a command in a group", "grants lits", "No such command 'lits'", "oauthbroker grants", "Did you mean 'list'?")
typed("a typo of an option", "grants list --subjct x", "No such option: --subjct", "oauthbroker grants list", "--subject")
typed("a typo of an app at revoke", "grants revoke --app mial --all --yes", "no app mial", "Did you mean mail?", "Nothing was changed")
typed("a typo of an app in a list", "grants list --app mial", "no app mial", "Did you mean mail?", "Known: mail")
typed("a typo of an app among sessions", "sessions list --app mial", "no app mial", "Did you mean mail?", "Known: mail")
typed("a typo of an app in the audit log", "audit tail --app mial", "no app mial", "Did you mean mail?", "Known: mail")
typed("a type of audit entry that there is not", "audit tail --type TokenIsued", "TokenIsued", ANYTHING, "TokenIssued")
typed("a session that there is not", "sessions show as-12345678", "no session as-12345678", ANYTHING, "oauthbroker sessions list")
typed("a grant that there is not", "grants show 12345678", "no grant 12345678", ANYTHING, "oauthbroker grants list")
typed("an event that there is not", "queues drop evt-12345678 --yes", "no dead letter evt-12345678", ANYTHING, "oauthbroker queues dead")
typed("an API key that there is not", "api-keys remove key-12345678 --yes", "no key key-12345678", ANYTHING, "oauthbroker api-keys list")
typed("a name of an API key that there is not", "api-keys rotate runtme", "no key of the name runtme", ANYTHING, "oauthbroker api-keys create")
typed("a role that there is not", "api-keys create planner --role admin", "'admin' is not one of", "--role", "'runtime', 'operator'")
typed("a lifetime without a unit", "api-keys create planner --expires 90", "Invalid value", "--expires", "90d, 24h, 30m or 45s")
typed("a secret that there is not", "secrets remove mial --yes", "no secret mial", ANYTHING, "There is none")
typed("an empty secret", "secrets set mail client_secret", "The secret is empty", ANYTHING, "send it to stdin")
typed("a secret on the command line", f"secrets set mail client_secret {PASSWORD}", "never an argument", ANYTHING, "send it to stdin")
typed("nothing to confirm with", "keys retire", "cannot be undone", ANYTHING, "--yes")
typed("a file of tokens that there is not", "grants import nope.jsonl", "cannot be read", "nope.jsonl", "Name a file that you may read")
typed("a typo of an app at an import", "grants import - --app mial", "no app mial", "Did you mean mail?", "Nothing was changed", stdin='{"subject": "idp:user:U1"}')
typed("a typo of an app in a line of an import", "grants import -", "line 1: No app is called mial", ANYTHING, "Did you mean mail?", stdin='{"app": "mial", "subject": "idp:user:U1", "refreshToken": "r"}')
typed("lines that are no tokens", "grants import - --app mail", "not one JSON object", "line 1", "nothing of this file was used", stdin="{bad")
typed("a provider that there is not", "providers show gihtub", "no preset of that name", ANYTHING, "github")
typed("a health check of no broker", "health", "No broker answers", "port {port}", "oauthbroker serve")
typed("a copy of a store onto itself", "store copy store store", "the same store", "store and store", "Name another")

# The configuration
written("a provider's typo", "provider: oidc", "provider: gihtub", "Nothing tells whose account", "mail.yaml:13:22 spec.owner", "provider github, write that")
written("a typo of a field", "subjectMode", "subjctMode", "Unknown field", "mail.yaml:7:3 spec.subjctMode", "subjectMode")
written("a typo of a kind", "OAuthApp", "OauthAp", "Unknown kind", "mail.yaml:2:7", "OAuthApp")
for name, encoding in (("a file in UTF-16", "utf-16"), ("a file in UTF-16 without its mark", "utf-16-le")):

    @row(name, "Not UTF-8 text", "config/mail.yaml", "Save it as UTF-8")
    def _(at: Stage, encoding: str = encoding) -> Done:
        at.app()
        file = Path("config", "mail.yaml")
        file.write_bytes(file.read_text("utf-8").encode(encoding))
        return at.desk.type("check")


@row("a port from a file with Windows line ends", "A line break or control character", "environment OAUTHBROKER_LISTEN_PORT spec.listen.port", "Remove it")
def _(at: Stage) -> Done:
    at.app()
    at.patch.setenv("OAUTHBROKER_LISTEN_PORT", f"{at.desk.port}\r")
    return at.desk.type("check")


@row("a store's folder from a file with Windows line ends", "A line break or control character", "environment OAUTHBROKER_STORE_ROOT spec.store.root", "Remove it")
def _(at: Stage) -> Done:
    at.app()
    at.patch.setenv("OAUTHBROKER_STORE_ROOT", f"{at.desk.folder}/store\r")
    return at.desk.type("grants", "list")


@row("a client secret from a file with Windows line ends", "environment MAIL_SECRET has a line break or control character", "mail.yaml:10:19", "Remove it")
def _(at: Stage) -> Done:
    at.app(("secretRef: {ref: Secret/mail, key: client_secret}", "env: MAIL_SECRET"))
    assert 0 == at.desk.type("init").code
    at.patch.setenv("MAIL_SECRET", "value\r")
    return at.desk.type("serve")


written("YAML that is none", "[read, write]", "[read, write", "not well-formed YAML", "mail.yaml:1", "Check indentation, quotes and brackets")
written("a tab", "  provider", "\tprovider", "A tab", "mail.yaml:5", "Indent with spaces")
written("a text in place of a list", "[read, write]", "read write", "Not a list", "mail.yaml:12:11 spec.scopes", "Write a list")
written("http for a provider", ISSUER, "http://idp.example", "http instead of https", "mail.yaml:11:23", "Write https://")
written("no hosts at an injection", "  scopes:", "  api: {{hosts: []}}\n  scopes:", "An empty list", "mail.yaml:12:16 spec.api.hosts", "Write at least one")
written("a callback's path in the wrong field", "  scopes:", "  redirect: {{path: /cb}}\n  scopes:", "Unknown field", "mail.yaml:12:14", "callbackPath")
settings("a port that is none", "port: {port}", "port: 99999", "Too large", "broker.yaml:6:35 spec.listen.port", "at most 65535")
settings("http for other machines", "{base}", "http://broker.example", "http instead of https", "broker.yaml:5:18", "Write https://")
settings("a second Broker", "kind: Broker", "kind: Broker", "A second Broker", "broker.yaml", "Keep one", more="\n---\n" + BROKER)
settings("a proxy without a scheme", "weaken:", "outgoingProxy: {{url: proxy.example:3128}}\n  weaken:", "outgoingProxy", "broker.yaml:9", "http://")
settings("a folder that there is not", "kind", "kind", "No such file or directory", "confg", "Name the folder", words="serve -c confg")


@row("a flow that the preset does not have", "deviceCodeUnsupported", "mail.yaml:6:9 spec.flow", "flow: authorizationCode")
def _(at: Stage) -> Done:
    at.app(("provider: oidc", "provider: slack"), ("authorizationCode", "deviceCode"), (f'  endpoints: {{issuer: "{ISSUER}"}}\n', ""))
    return at.desk.type("check")


@row("two apps of one name", "This name is taken", "mail.yaml:3:18", "Rename or remove one")
def _(at: Stage) -> Done:
    at.app()
    at.app(name="copy")
    return at.desk.type("check")


@row("an empty folder", "No YAML file here", "empty", "Put *.yaml files there")
def _(at: Stage) -> Done:
    Path("empty").mkdir()
    return at.desk.type("check", "empty")


@row("a client secret that was never stored", "not in the secret store", "mail.yaml:10:19", "oauthbroker secrets set mail client_secret")
def _(at: Stage) -> Done:
    at.ready()
    return at.desk.type("serve")


@row("a client secret's variable that is not set", "Environment MAIL_SECRET is not set", "mail.yaml:10:19", "Set it where the broker starts")
def _(at: Stage) -> Done:
    at.app(("secretRef: {ref: Secret/mail, key: client_secret}", "env: MAIL_SECRET"))
    assert 0 == at.desk.type("init").code
    return at.desk.type("serve")


# What one pastes from a page or a shell
written("typographic quotes", "client-mail", "\u201cclient-mail\u201d", "Typographic quotes", "mail.yaml:9:15 spec.client.clientId", "Write plain quotes, or none")
written("a variable of a shell", "client-mail", "${{CLIENT_ID}}", "not replaced", "mail.yaml:9:15 spec.client.clientId", "Write {valueFrom: {env: NAME}}")
written("a quoted variable of a shell", "client-mail", '"${{CLIENT_ID}}"', "not replaced", "mail.yaml:9:15 spec.client.clientId", "Write {valueFrom: {env: NAME}}")
written("this machine among the hosts, without http", "  scopes:", "  api: {{hosts: ['127.0.0.1:8519']}}\n  scopes:", "This machine without http://", "mail.yaml:12:17 spec.api.hosts[0]", "Write http://127.0.0.1:8519")
written("localhost among the hosts", "  scopes:", "  api: {{hosts: ['localhost:8519']}}\n  scopes:", "This machine without http://", "mail.yaml:12:17 spec.api.hosts[0]", "Write http://127.0.0.1:8519")
written("https at the port of http", "  scopes:", "  api: {{hosts: ['api.example.com:80']}}\n  scopes:", "https at the port of http", "mail.yaml:12:17 spec.api.hosts[0]", "Leave the port out")


@row("a command of a plug-in that is not in use", "does not name 'flowtools'", "spec.plugins", "add it there")
def _(at: Stage) -> Done:
    at.ready()
    assert 0 == at.desk.type("secrets", "set", *SECRET, stdin="value").code
    return at.desk.type("flow", "run", "nothing")


@row("a file of recipients in place of an identity", "has recipients, and no identity in it", "age-keygen -o FILE")
def _(at: Stage) -> Done:
    (at.desk.folder / "recipient").write_text("age1" + "q" * 58 + "\n")
    (at.desk.folder / "recipient").chmod(0o600)
    return at.desk.type("store", "import", "a.age", "--identity", str(at.desk.folder / "recipient"))


@row("an identity that is none", "not of the form AGE-SECRET-KEY-1...", "A line of", "age-keygen")
def _(at: Stage) -> Done:
    at.ready()
    Path("keys", "identity").write_text("text")
    Path("keys", "identity").chmod(0o600)
    return at.desk.type("store", "import", "x.age", "--identity", "keys/identity")


@row("a recipient that is none", "not of the form age1...", "A recipient", "age-keygen")
def _(at: Stage) -> Done:
    at.ready()
    return at.desk.type("store", "export", "x.age", "--recipient", "age1of-no-use")


@row("a first start with a folder of its own", "There is no store yet. Run: ", "key: {key}", "`oauthbroker init --config 'my config'`")
def _(at: Stage) -> Done:
    at.app()
    Path("config").rename("my config")
    return at.desk.type("serve", "--config", "my config")


# Ports, disks, other stores
@row("a port that is taken", "another process listens there", "127.0.0.1 port {port}", "Stop it, or change spec.listen (OAUTHBROKER_LISTEN_PORT)")
def _(at: Stage) -> Done:
    at.ready()
    with socket.create_server(("127.0.0.1", at.desk.port)):
        return at.desk.type("serve")


settings("an address of another machine", "host: 127.0.0.1", "host: 192.0.2.1", "no such address", "192.0.2.1 port {port}", "Change spec.listen", words="serve")


@row("a privileged port", "rights this user does not have", "port 80", "Choose a port above 1023")
def _(at: Stage) -> Done:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    at.broker((f"port: {at.desk.port}", "port: 80"))
    at.patch.setattr(socket, "create_server", refused)
    return at.desk.type("serve")


@row("a file in the store's place", "a file is in its place", "store: {store}", "name another folder")
def _(at: Stage) -> Done:
    Path("store").write_text("text")
    return at.desk.type("init")


settings("a folder that cannot be made", "../store", "/proc/nowhere", "it cannot be made there", "store: /proc/nowhere", "name another folder", words="init")
settings("a key folder that cannot be made", "../keys", "/proc/nowhere", "it cannot be made there", "key: /proc/nowhere/broker.kek", "name another folder", words="init")


@contextmanager
def mounted(*options: str) -> Iterator[None]:
    Path("store").mkdir(mode=0o700, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", "store"], check=True, timeout=30)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", "store"], check=True, timeout=30)


def fill_up() -> None:
    with suppress(OSError), Path("store", "fill").open("wb", buffering=0) as stream:
        for _ in range(64):
            stream.write(b"x" * 4096)


@row("a full disk", "the disk is full", "store: {store}", "free space there")
def _(at: Stage) -> Done:
    with mounted("size=64k", "mode=700"):
        fill_up()
        return at.desk.type("init")


@row("a disk that fills up later", "the audit log cannot be written: ENOSPC, the disk is full", "store: {store}", "free space there")
def _(at: Stage) -> Done:
    with mounted("size=128k", "mode=700"):
        at.ready()
        fill_up()
        return at.desk.type("secrets", "set", *SECRET, stdin="value")


@row("a store that became read-only", "it is read-only", "store: {store}", "mount it for writing")
def _(at: Stage) -> Done:
    with mounted("mode=700"):
        at.ready()
        subprocess.run(["mount", "-o", "remount,ro", "store"], check=True, timeout=30)
        return at.desk.type("secrets", "set", *SECRET, stdin="value")


@row("a disk that is read-only", "it is read-only", "store: {store}", "mount it for writing")
def _(at: Stage) -> Done:
    with mounted("ro", "mode=700"):
        return at.desk.type("init")


@row("a restored store", "set back to an older state", "store: {store}", "oauthbroker store accept-restore")
def _(at: Stage) -> Done:
    at.ready()
    identity = pyrage.x25519.Identity.generate()
    Path("keys", "identity").write_text(str(identity))
    Path("keys", "identity").chmod(0o600)
    at.desk.canaries.excuse(Path("keys", "identity").absolute())
    assert 0 == at.desk.type("store", "export", "x.age", "--recipient", str(identity.to_public())).code
    shutil.rmtree("store")
    assert 0 == at.desk.type("store", "import", "x.age", "--identity", "keys/identity").code
    return at.desk.type("grants", "list")


# A broker that runs
@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    with shared_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def service(server: SharedServer) -> Service:
    return Service(server.desk.port, make_key(server.desk))


def page(at: Stage, path: str) -> Done:
    with closing(HTTPConnection("127.0.0.1", at.server.desk.port, timeout=30)) as line:
        line.request("GET", path)
        answer = line.getresponse()
        return Done(answer.status // 400, answer.read().decode(), "")


def called(at: Stage, key: str, work: Callable[[Runtime], Any]) -> Done:
    async def call() -> str:
        try:
            async with Runtime(at.server.desk.base, key) as runtime:
                await work(runtime)
        except BrokerError as error:
            return str(error)
        return ""

    said = asyncio.run(call())
    return Done(int(bool(said)), "", said)


@row("a second broker of one configuration", "another process listens there", "127.0.0.1 port", "Stop it, or change spec.listen")
def _(at: Stage) -> Done:
    at.patch.chdir(at.server.desk.folder)
    return at.desk.type("serve")


@row("a move of a store that a broker uses", "brokers use", "store", "stop")
def _(at: Stage) -> Done:
    at.patch.chdir(at.server.desk.folder)
    return at.desk.type("store", "copy", "store", str(at.desk.folder / "moved"), "--cut-over")


@row("no broker at the address", "does not answer", "http://127.0.0.1:", "start the broker there")
def _(at: Stage) -> Done:
    at.tool(f"http://127.0.0.1:{free_port()}")
    return at.desk.type("token", "mail")


@row("no login, and no turn", "no app for mail", "mail", "oauthbroker login mail")
def _(at: Stage) -> Done:
    return at.desk.type("token", "mail")


@row("an address from a file with Windows line ends", "begins or ends with white space", "OAUTHBROKER_URL", "remove it")
def _(at: Stage) -> Done:
    at.tool(f"http://127.0.0.1:{free_port()}\r")
    return at.desk.type("token", "mail")


@row("a turn token with a line break at its end", "begins or ends with white space", "OAUTHBROKER_TURN_TOKEN", "remove it")
def _(at: Stage) -> Done:
    at.tool(f"http://127.0.0.1:{free_port()}", f"{TURN_TOKEN}\n")
    return at.desk.type("token", "mail")


@row("an API key with a line break at its end", "begins or ends with white space", "the token or key", "remove it")
def _(at: Stage) -> Done:
    with pytest.raises(ValueError, match="white space") as refused:
        Runtime(f"http://127.0.0.1:{free_port()}", f"oabk.{'l' * 22}.{'s' * 43}\n")
    return Done(1, "", str(refused.value))


@row("an address without a scheme", "the broker's address is", "OAUTHBROKER_URL", "https://host")
def _(at: Stage) -> Done:
    at.tool("127.0.0.1:8420")
    return at.desk.type("token", "mail")


@row("a turn token of another broker", "The caller is not known", "OAUTHBROKER_TURN_TOKEN", "the runtime sets one for each turn")
def _(at: Stage) -> Done:
    at.tool(at.server.desk.base)
    return at.desk.type("token", "mail")


@row("a turn token that is none", "The caller is not known", "OAUTHBROKER_TURN_TOKEN", "the runtime sets one for each turn")
def _(at: Stage) -> Done:
    at.tool(at.server.desk.base, PASSWORD)
    return at.desk.type("token", "mail")


def in_turn(at: Stage, *words: str, ends: bool = False, user: str = "") -> Done:
    begun = at.service.begin(user or user_of(at.server.idp))
    at.tool(at.server.desk.base, begun["turnToken"])
    if ends:
        assert 204 == at.service.call("DELETE", f"/v1/turns/{begun['turnId']}")[0]
    return at.desk.type(*words)


@row("TLS to a server without", "does not answer", "OAUTHBROKER_URL is https://127.0.0.1:", "with http:// if that one is served without TLS")
def _(at: Stage) -> Done:
    at.tool(at.server.desk.base.replace("http:", "https:"))
    return at.desk.type("token", "mail")


@row("an address with the path of the API", "leave /v1 out of the broker's address", "OAUTHBROKER_URL")
def _(at: Stage) -> Done:
    at.tool(f"{at.server.desk.base}/v1")
    return at.desk.type("token", "mail")


@row("an address by another name of the host", "This host name is not served here", "OAUTHBROKER_URL is http://localhost:", "correct it")
def _(at: Stage) -> Done:
    at.tool(at.server.desk.base.replace("127.0.0.1", "localhost"))
    return at.desk.type("token", "mail")


@row("an API key in place of a turn token", "not for this kind of caller", "OAUTHBROKER_TURN_TOKEN is no turn token", "the runtime sets one for each turn")
def _(at: Stage) -> Done:
    at.tool(at.server.desk.base, make_key(at.server.desk))
    return at.desk.type("token", "mail")


row("a turn that has ended", "The turn has ended", "OAUTHBROKER_TURN_TOKEN", "the runtime sets one for each turn")(lambda at: in_turn(at, "token", "mail", ends=True))
row("an app that is not configured", "No app of that name", "oauthAppRef", "Check")(lambda at: in_turn(at, "token", "mial"))
row("a scope that is not declared", "The scope delete is not allowed", "Allowed are: read", "declare more in the OAuthApp and in the tool")(lambda at: in_turn(at, "token", "mail", "--scope", "delete"))
row("an expired link", "not valid any more", ANYTHING, "ask for a new one there")(lambda at: page(at, f"/connect/{'A' * 65}"))
row("a link that was cut", "not whole", ANYTHING, "exactly as you got it")(lambda at: page(at, "/connect/none-of-ours"))
row("a callback that is none", "was not readable", ANYTHING, "Start again from the link that you got")(lambda at: page(at, "/oauth/callback/mail?state=x&code=y"))
row("a wrong API key", "unauthenticated", "HTTP 401", "Send a valid token")(lambda at: called(at, "oabk." + "l" * 22 + "." + "s" * 43, lambda it: it.cancel("as-1")))


@row("a turn without the subject", "turn.auth.subjects.user is missing", "subjects.user", "Start the turn with that subject")
def _(at: Stage) -> Done:
    status, begun = at.service.call("POST", "/v1/turns", {"turn": {"agentName": "a", "instanceKey": "i", "swarmRef": "Swarm/s"}})
    assert 201 == status, begun
    at.tool(at.server.desk.base, begun["turnToken"])
    return at.desk.type("token", "mail")


@row("an API key that was removed", "unauthenticated", "HTTP 401", "Send a valid token")
def _(at: Stage) -> Done:
    key = make_key(at.server.desk)
    at.patch.chdir(at.server.desk.folder)
    assert 0 == at.desk.type("api-keys", "remove", key.split(".", 2)[1], "--yes").code
    return called(at, key, lambda it: it.cancel("as-1"))


@row("an API key with the wrong role", "notAllowed", "HTTP 403", "a key with the role")
def _(at: Stage) -> Done:
    return called(at, make_key(at.server.desk, "operator"), lambda it: it.begin(Turn("planner", "i", "Swarm/s")))


@row("a proxy's variable", "HTTPS_PROXY is set here, and the broker does not read it", "configuration", "Write spec.outgoingProxy")
def _(at: Stage) -> Done:
    at.ready()
    at.patch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    return at.desk.type("doctor")


# fmt: on
@pytest.mark.parametrize("name", ROWS)
def test_a_mistake_is_answered_with_its_cause_its_place_and_what_to_do(
    name: str, desk: Desk, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    make, says = ROWS[name]
    done = make(Stage(desk, monkeypatch, request))
    said = f"{done.out}{done.err}"
    places = {"key": desk.key_file, "store": desk.folder / "store", "port": desk.port, "base": desk.base}
    for part in says:
        wanted = part
        for word, place in places.items():
            wanted = wanted.replace(f"{{{word}}}", str(place))
        assert wanted in said, said
    assert 0 != done.code, said
    assert not any(word in said for word in (PASSWORD, "Traceback", "Internal error", "oabt.")), said
    assert len(done.err.splitlines()) <= 8, said


def test_a_hundred_mistakes_and_more_are_made() -> None:
    assert 115 <= len(ROWS)


def test_each_code_has_a_row_on_the_page_that_refusals_point_to() -> None:
    text = PAGE.read_text("utf-8")
    assert [] == [code for code in Code if f'<a id="{anchor_of(code)}"></a>`{code.value}`' not in text]
