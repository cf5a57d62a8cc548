"""What the flows of a service reach outside: the ports, by the configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oauthbroker import RoomResource
from oauthbroker.flowtools.running.mail import SmtpAdapter, mail_server
from oauthbroker.flowtools.running.ports import Ports, SandboxAdapter
from oauthbroker.flowtools.running.requests import BrokerRequests
from oauthbroker.flowtools.serving.kinds import FlowServiceSpec

if TYPE_CHECKING:
    from oauthbroker import Broker


def ports_of(resource: RoomResource, broker: Broker) -> Ports:
    """Return the ports of a FlowService: requests by the broker, mail, and the sandbox if it is allowed. Call it on the
    broker's event loop."""
    spec: FlowServiceSpec = resource.spec
    password = resource.secrets.get(("mailPassword",))
    email = SmtpAdapter(mail_server(spec.mail, password)) if spec.mail is not None else None
    ports = Ports(email=email, requests=BrokerRequests(broker))
    if not spec.sandbox:
        return ports
    return replace(ports, sms=SandboxAdapter(), payments=_EveryProvider(), sandbox=True)


class _EveryProvider(dict[str, SandboxAdapter]):
    """Payments of the sandbox: each provider that a flow names is played."""

    def __contains__(self, _provider: object) -> bool:
        return True

    def __missing__(self, _provider: str) -> SandboxAdapter:
        return SandboxAdapter()
