"""Email nodes by SMTP: one message to all recipients or to none, and a plain word for each way to fail."""

from __future__ import annotations

import email
import ssl
from collections.abc import Mapping
from dataclasses import replace
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from oauthbroker import Secret
from oauthbroker.flowtools.running.mail import SmtpAdapter
from oauthbroker.flowtools.running.ports import AnswerLost, Effect, EffectRefused, NotSent, Ports
from oauthbroker.testing.authority import Authority
from tests.kit.smtp import HANG_UP, MailStandIn, mail_stand_in
from tests.unit.flowtools.run_kit import STAFF, world_in

pytestmark = pytest.mark.rule("000-types-mail")
EFFECT = Effect(
    kind="email",
    operation="",
    fields={"to": "bob@example.com", "subject": "Paid", "body": "Thank you.\n.\nGrüße"},
    key="k" * 40,
    seconds=5.0,
    at="2026-11-26T12:00:00.000Z",
)


def adapter(port: int, scheme: str = "smtp", user: str = "", *, tls: ssl.SSLContext | None = None) -> SmtpAdapter:
    password = Secret("hunter2" * 3) if user else None
    made = SmtpAdapter(f"{scheme}://{user}127.0.0.1:{port}?from=shop@example.com", password)
    if tls is not None:
        made.tls = tls
    return made


def sent(server: MailStandIn) -> email.message.EmailMessage:
    (raw,) = server.messages
    return email.message_from_bytes(raw.replace(b"\r\n..", b"\r\n."), policy=default)


def test_a_message_arrives_whole_and_has_the_id_of_its_effect():
    with mail_stand_in() as server:
        answer = adapter(server.port).send(EFFECT)
    message = sent(server)
    assert ("shop@example.com", "bob@example.com", "Paid") == (message["From"], message["To"], message["Subject"])
    assert "Thank you.\n.\nGrüße\n" == message.get_content().replace("\r\n", "\n")
    assert {"messageId": f"<{'k' * 40}@example.com>"} == answer
    assert answer["messageId"] == message["Message-ID"]


TWO = "Bob <b@example.com>, c@example.com"


def test_a_message_goes_to_all_recipients():
    with mail_stand_in() as server:
        adapter(server.port).send(replace(EFFECT, fields={**EFFECT.fields, "to": TWO}, most_recipients=2))
    assert ["<b@example.com>", "<c@example.com>"] == [
        each.partition(":")[2] for each in server.commands if each.upper().startswith("RCPT")
    ]


ENDS: dict[str, tuple[Mapping[str, str], type[Exception], bool]] = {
    "no greeting": ({"connect": HANG_UP}, NotSent, False),
    "busy": ({"connect": "421 busy"}, EffectRefused, True),
    "ends at the sender": ({"MAIL": HANG_UP}, NotSent, False),
    "refuses the sender": ({"MAIL": "550 no"}, EffectRefused, False),
    "ends at the recipient": ({"RCPT": HANG_UP}, NotSent, False),
    "refuses the recipient": ({"RCPT": "550 no"}, EffectRefused, False),
    "asks for another try": ({"RCPT": "451 later"}, EffectRefused, True),
    "refuses the message before it": ({"DATA": "554 no"}, EffectRefused, False),
    "ends behind the message": ({".": HANG_UP}, AnswerLost, False),
    "refuses the message": ({".": "554 spam"}, EffectRefused, False),
    "is full": ({".": "452 full"}, EffectRefused, True),
}


@pytest.mark.parametrize("name", ENDS)
def test_each_way_to_fail_says_whether_the_message_may_have_been_sent(name):
    script, kind, again = ENDS[name]
    with mail_stand_in(script=script) as server, pytest.raises(kind) as failed:
        adapter(server.port).send(EFFECT)
    assert again == getattr(failed.value, "again", False)
    assert "example.com" not in str(failed.value)


def test_a_server_that_is_away_has_sent_nothing():
    with mail_stand_in() as server:
        port = server.port
    with pytest.raises(NotSent):
        adapter(port).send(EFFECT)


HOSTILE: dict[str, dict[str, Any]] = {
    "a second header": {"to": "bob@example.com\r\nBcc: eve@example.com"},
    "a second command": {"to": "bob@example.com>\r\nDATA"},
    "no address": {"to": "bob"},
    "nothing": {"to": ""},
    "more than the tool declares": {"to": TWO},
    "no text": {"to": 3},
    "a subject of two lines": {"subject": "Paid\nBcc: eve@example.com"},
    "another alphabet": {"to": "bob@exämple.com"},
    "an encoded address": {"to": "bob@=?utf-8?q?example=3E?="},
    "a list that the library cannot read": {"to": "bob@"},
    "a group that it cannot read": {"to": ":;bob.example"},
    "a subject that ends its line": {"subject": "Paid\n"},
    "a subject that returns": {"subject": "Paid\r"},
    "a second header, encoded": {"subject": "=?utf-8?q?Paid=0d=0aBcc=3A_eve=40example=2Ecom?="},
    "a second header, in base64": {"subject": "=?utf-8?b?UGFpZApCY2M6IGV2ZUBleGFtcGxlLmNvbQ==?="},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_value_that_could_change_the_message_is_refused_before_anything_is_sent(name):
    with mail_stand_in() as server, pytest.raises(EffectRefused):
        adapter(server.port).send(replace(EFFECT, fields={**EFFECT.fields, **HOSTILE[name]}))
    assert [] == server.commands


@pytest.mark.parametrize("scheme", ["smtps", "smtp+starttls"])
def test_tls_is_verified_and_a_login_happens_inside_it(tmp_path: Path, scheme: str):
    certificate = Authority(tmp_path).issue()
    with mail_stand_in(tls=certificate.context, implicit=scheme == "smtps") as server:
        with pytest.raises(NotSent):
            adapter(server.port, scheme, "shop@").send(EFFECT)
        assert not any(each.startswith("AUTH") for each in server.commands)
    with mail_stand_in(tls=certificate.context, implicit=scheme == "smtps") as server:
        trusting = ssl.create_default_context(cafile=certificate.trust)
        adapter(server.port, scheme, "shop@", tls=trusting).send(EFFECT)
        assert any(each.startswith("AUTH PLAIN") for each in server.commands)
        assert "Paid" == sent(server)["Subject"]


def test_a_refused_login_sends_nothing_and_tells_no_password():
    with mail_stand_in(script={"AUTH": "535 no"}) as server, pytest.raises(EffectRefused) as refused:
        adapter(server.port, user="shop@").send(EFFECT)
    assert "the mail server answered 535" == str(refused.value)
    assert [] == server.messages


def test_a_login_that_the_library_cannot_write_has_sent_nothing():
    with mail_stand_in() as server, pytest.raises(NotSent):
        url = f"smtp://shop@127.0.0.1:{server.port}?from=shop@example.com"
        SmtpAdapter(url, Secret("pässwort" * 3)).send(EFFECT)
    assert [] == server.messages


@pytest.mark.parametrize(
    "url",
    [
        "smtp://mail.example.com?from=a@example.com",
        "smtps://user:secret@mail.example.com?from=a@example.com",
        "smtps://mail.example.com",
        "smtps://mail.example.com?from=a@example.com&to=b",
        "smtps://mail.example.com?from=nobody",
        "http://mail.example.com?from=a@example.com",
        "smtps://user@mail.example.com?from=a@example.com",
    ],
)
def test_a_server_that_is_not_safe_or_not_whole_is_refused(url: str):
    with pytest.raises(ValueError, match=r"mail|password|user|address"):
        SmtpAdapter(url, None)


def test_a_flow_sends_its_mail_and_a_lost_answer_is_never_sent_again(tmp_path):
    with mail_stand_in(script={".": HANG_UP}) as server:
        world = world_in(tmp_path, ports=Ports(email=adapter(server.port)))
        node = {"to": "'bob@example.com'", "subject": "'Paid'", "body": "'b'"}
        flow = world.flow({"m": ("email", node)}, [], idempotencyKey="input.id")
        first, again = (world.runs.call(flow, {"id": "a"}, STAFF) for _ in range(2))
    assert ("unknown", "unknown", 1) == (first.state, again.state, len(server.messages))


@pytest.mark.parametrize(("declared", "messages"), [({}, 0), ({"mostRecipients": 2}, 1)])
def test_a_tool_declares_how_many_recipients_its_mail_may_have(tmp_path: Path, declared: dict[str, int], messages: int):
    with mail_stand_in() as server:
        world = world_in(tmp_path, ports=Ports(email=adapter(server.port)))
        node = {"to": f"'{TWO}'", "subject": "'Paid'", "body": "'b'", **declared}
        result = world.runs.call(world.flow({"m": ("email", node)}, []), {"id": "a"}, STAFF)
    assert (("failed", "succeeded")[messages], messages) == (result.state, len(server.messages))
