"""The specification's rules are shown on the harnesses that the stories use."""

from __future__ import annotations

from tests.story.conftest import filed, harness

__all__ = ["filed", "harness"]
