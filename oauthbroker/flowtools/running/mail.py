"""Mail by SMTP (RFC 5321), for email nodes. Everything before the end of the message has certainly sent nothing. A
connection that ends behind it leaves the answer open: such a message is never sent again blindly."""

from __future__ import annotations

import re
import smtplib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from oauthbroker import Secret
from oauthbroker.flowtools.running.ports import AnswerLost, Effect, EffectRefused, NotSent

_SCHEMES: Final = {"smtps": ("tls", 465), "smtp+starttls": ("starttls", 587), "smtp": ("none", 25)}
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # a tab ends no line
_POLICY: Final = SMTP.clone(cte_type="7bit")  # any server takes it
_TRANSIENT, _PERMANENT, _DONE = 400, 500, 250


class SmtpAdapter:
    """Sends each effect as one message, to all its recipients or to none."""

    takes_keys = False

    def __init__(self, url: str, password: Secret | None) -> None:
        """Read `smtps://user@host:465?from=shop@example.com`, or `smtp+starttls://`; `smtp://` is for loopback alone.
        The password is no part of the URL, because others may read a URL. Raises ValueError."""
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        if parts.scheme not in _SCHEMES or not parts.hostname or set(query) != {"from"} or parts.path not in {"", "/"}:
            raise ValueError("the mail server is no URL such as smtps://user@smtp.example.com?from=shop@example.com")
        self._security, port = _SCHEMES[parts.scheme]
        if self._security == "none" and parts.hostname not in _LOOPBACK:
            raise ValueError("mail without TLS goes to loopback alone: write smtps:// or smtp+starttls://")
        if parts.password is not None:
            raise ValueError("a password does not belong into the URL of the mail server")
        if bool(parts.username) != (password is not None):
            raise ValueError("a user and a password of the mail server belong together")
        self._place, self._username, self._password = (parts.hostname, parts.port or port), parts.username, password
        self._from, self._sender = query["from"], _addresses(query["from"])[0]

    @cached_property
    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def send(self, effect: Effect) -> Any:
        message, recipients = self._message(effect)
        with self._connected(effect.seconds) as client:
            self._announce(client, recipients)
            with _stage(AnswerLost("the connection ended before the mail server answered")):
                code, _ = client.data(message.as_bytes())
        if code != _DONE:
            raise _refused(code)
        return {"messageId": message["Message-ID"]}

    def _message(self, effect: Effect) -> tuple[EmailMessage, list[str]]:
        """Return the message, whose id is that of each attempt, and its recipients."""
        subject, body = effect.fields.get("subject"), effect.fields.get("body")
        if not (isinstance(subject, str) and isinstance(body, str)):
            raise EffectRefused("an email has texts for subject and body")
        message = EmailMessage(policy=_POLICY)
        try:
            recipients = _addresses(effect.fields.get("to"), most=effect.most_recipients)
            message["From"], message["To"] = self._from, ", ".join(recipients)
            message["Subject"] = subject
            message["Date"] = format_datetime(datetime.fromisoformat(effect.at))
            message["Message-ID"] = f"<{effect.key}@{self._sender.rpartition('@')[2]}>"
            message.set_content(body)
            one_line = not any(map(_CONTROL.search, (subject, message["Subject"])))  # also when its words are decoded
        except ValueError:
            one_line = False
        if not one_line:
            raise EffectRefused("an address or the subject of an email is not valid")
        return message, recipients

    @contextmanager
    def _connected(self, seconds: float) -> Iterator[smtplib.SMTP]:
        """Connect, with TLS and a login if they are configured. Nothing is sent yet."""
        with _stage(NotSent("the mail server cannot be reached")):
            if self._security == "tls":
                client: smtplib.SMTP = smtplib.SMTP_SSL(*self._place, timeout=seconds, context=self.tls)
            else:
                client = smtplib.SMTP(*self._place, timeout=seconds)
        try:
            with _stage(NotSent("the mail server ended the connection")):
                if self._security == "starttls":
                    client.starttls(context=self.tls)
                if self._password is not None:
                    client.login(unquote(self._username or ""), self._password.reveal())
            yield client
        finally:
            client.close()

    def _announce(self, client: smtplib.SMTP, recipients: list[str]) -> None:
        with _stage(NotSent("the mail server ended the connection")):
            client.ehlo_or_helo_if_needed()
            answers = [client.mail(self._sender)]
            answers += [client.rcpt(each) for each in recipients]
        worst = max(code for code, _ in answers)
        if worst >= _TRANSIENT:
            raise _refused(worst)


@contextmanager
def _stage(lost: NotSent | AnswerLost) -> Iterator[None]:
    """Translate what the library raises. No text of the server is kept: it may quote an address."""
    refusal: Exception = lost
    try:
        yield
        return
    except smtplib.SMTPResponseException as error:
        refusal = _refused(error.smtp_code)
    except (smtplib.SMTPException, OSError, ValueError):  # ValueError: a login that is not ASCII
        pass
    raise refusal


def _refused(code: int) -> EffectRefused:
    """Return the refusal of a reply. A reply below 500 asks for another try (RFC 5321 section 4.2.1)."""
    return EffectRefused(f"the mail server answered {code}", again=code < _PERMANENT)


def _addresses(text: Any, *, most: int = 1) -> list[str]:
    """Return the addresses of a list, in ASCII. Raises ValueError for an unreadable one, and for more than `most`."""
    if not isinstance(text, str) or not text.isascii() or not text.isprintable() or "=?" in text:
        raise ValueError("no address, or an encoded one")
    try:
        header: Any = _POLICY.header_factory("To", text)
        found = [each.addr_spec for each in header.addresses if each.domain]
    except Exception:  # noqa: BLE001  (the library says in several ways that it cannot read a list)
        found = []
    if not found or header.defects or len(found) != len(header.addresses) or len(found) > most:
        raise ValueError("no address")
    return found
