"""Checks of the repository, of its pages and of its tests: `make check` runs them."""

from __future__ import annotations

import hypothesis

pytest_plugins = ["oauthbroker.testing.pytest_plugin"]  # the code of pages leaks no secret

hypothesis.settings.register_profile("quality", deadline=None)
hypothesis.settings.load_profile("quality")
