"""The written form of `kind: Forwarder`."""

from typing import Annotated

from pydantic import Field

from oauthbroker.config.written.client_spec import SecretSource
from oauthbroker.config.written.fields import Strict, Text, Texts


class WebhookSpec(Strict):
    """One secret, or two while they are changed."""

    url: Text | None = None
    secrets: Annotated[list[SecretSource], Field(max_length=2)] | None = None


class NatsSpec(Strict):
    servers: Annotated[list[Text], Field(max_length=10)] | None = None
    subject: Text | None = None
    user: Text | None = None
    password: SecretSource | None = None


class ForwarderSpec(Strict):
    """Sends the events of agents to a receiver. It has `webhook` or `nats`, never both."""

    agents: Texts | None = None
    webhook: WebhookSpec | None = None
    nats: NatsSpec | None = None
    networks: Texts | None = None
