"""The upgrade steps of a store's records, in their order. A step is never removed and never changes its name."""

from __future__ import annotations

from oauthbroker.repository.grant_tags import tag_grants
from oauthbroker.repository.queue_upgrade import split_queues
from oauthbroker.store.keys.upgrade import UpgradeStep

STEPS: tuple[UpgradeStep, ...] = (UpgradeStep("queues", split_queues), UpgradeStep("tags", tag_grants))
