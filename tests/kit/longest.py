"""Give half of the workers of a run its longest files to begin with: they wait while the others compute, and at the end no
worker is left alone with one of them.

`--dist worksteal` gives each worker an equal part of the tests in their order, and takes from the end of a part for a worker
that has none left. `tests/kit/costs.py` tells how long a file takes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = (
    "tests/faults/test_hosts.py",
    "tests/faults/test_soak.py",
    "tests/story/test_company_proxies.py",
    "tests/faults/test_outages.py",
    "tests/world/test_worlds.py",
    "tests/faults/test_rotation_load.py",
    "tests/e2e/test_typescript_client.py",
    "tests/e2e/test_agent_runtime_page.py",
    "tests/e2e/test_team_assistant.py",
    "tests/faults/test_storm.py",
    "tests/faults/test_held_locks.py",
    "tests/faults/test_refresh_disk.py",
    "tests/faults/test_rotation_database_crash.py",
    "tests/faults/test_server_kills.py",
    "tests/e2e/test_mcp_typescript.py",
    "tests/story/cli/test_mcp_serve.py",
    "tests/story/test_framework_mcp.py",
    "tests/faults/test_sandbox_escapes.py",
    "tests/unit/flowtools/running/test_kills.py",
    "tests/unit/flowtools/running/test_storm.py",
    "tests/unit/flowtools/running/test_raised_anywhere.py",
    "tests/unit/flowtools/running/test_erasing.py",
    "tests/story/test_postgres.py",
    "tests/story/cli/test_serve_workers.py",
    "tests/story/cli/test_serve_plugins.py",
    "tests/story/test_agents_broken_changesets.py",
    "tests/faults/test_forwarding_kills.py",
    "tests/story/test_agents.py",
    "tests/story/both_loops/test_server_limits.py",
    "tests/unit/tools/changesets/test_trial.py",
    "tests/story/test_agents_failed_turns.py",
    "tests/story/test_accounts_in_framework_agents.py",
    "tests/story/test_keys_in_framework_agents.py",
    "tests/e2e/test_oidc_refresh.py",
    "tests/story/cli/test_serve_flows.py",
    "tests/story/test_api_schema.py",
    "tests/story/test_agents_changesets.py",
    "tests/e2e/test_device_code.py",
    "tests/e2e/test_browser_bindings.py",
    "tests/e2e/test_people_pages.py",
    "tests/model/test_replay.py",
)


def sort(items: list[pytest.Item], workers: int = 1) -> None:
    """Move the tests of these files to the front of every second worker's part, in the order of the list. All others keep
    their order."""
    places = {ROOT / path: place for place, path in enumerate(LONGEST)}
    parts: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for item in sorted((item for item in items if item.path in places), key=lambda item: places[item.path]):
        parts[places[item.path] * 2 % (workers + workers % 2)].append(item)
    others = [item for item in items if item.path not in places]
    left = len(items)
    for number, part in enumerate(parts):
        fitting = max(0, left // (workers - number) - len(part))
        part.extend(others[:fitting])
        del others[:fitting]
        left -= len(part)
    items[:] = [item for part in parts for item in part] + others
