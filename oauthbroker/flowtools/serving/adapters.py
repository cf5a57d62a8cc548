"""What the flows of a service reach outside: the ports, by the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oauthbroker.flowtools.running.installed_adapters import installed_adapter
from oauthbroker.flowtools.running.mail import SmtpAdapter, mail_server
from oauthbroker.flowtools.running.ports import Adapter, Ports, with_sandbox
from oauthbroker.flowtools.running.requests import BrokerRequests
from oauthbroker.flowtools.serving.kinds import FlowServiceSpec
from oauthbroker.plugins import PluginResource

if TYPE_CHECKING:
    from oauthbroker import Broker


def ports_of(resource: PluginResource, broker: Broker) -> Ports:
    """Return the ports of a FlowService. Call it on the broker's event loop. Raises ValueError for a bad adapter."""
    spec: FlowServiceSpec = resource.spec
    password = resource.secrets.get(("mailPassword",))
    payments: dict[str, Adapter] = {
        name: installed_adapter(
            "payments", each.adapter, each.settings, resource.secrets.get(("payments", name, "secret"))
        )
        for name, each in spec.payments.items()
    }
    sms = None
    if spec.sms is not None:
        sms = installed_adapter("sms", spec.sms.adapter, spec.sms.settings, resource.secrets.get(("sms", "secret")))
    email = SmtpAdapter(mail_server(spec.mail, password)) if spec.mail is not None else None
    ports = Ports(email=email, sms=sms, payments=payments, requests=BrokerRequests(broker))
    return with_sandbox(ports) if spec.sandbox else ports
