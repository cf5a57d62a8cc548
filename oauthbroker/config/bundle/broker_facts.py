"""What the Broker resource says for the drafts of all apps."""

from __future__ import annotations

from typing import NamedTuple

from oauthbroker.config.reading.shape import Written
from oauthbroker.config.written.broker_spec import BrokerSpec
from oauthbroker.model.provider_networks import ProviderNetworks
from oauthbroker.model.settings import Settings


class BrokerFacts(NamedTuple):
    """The resource, and what follows from it: the networks that providers may be in, the certificates (PEM) trusted
    beside those of the system, and the hint for a secret that is written in place."""

    broker: Written[BrokerSpec]
    settings: Settings
    reach: ProviderNetworks
    ca: str
    plain_hint: str
