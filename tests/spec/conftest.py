"""The specification's rules are shown on the houses that the stories use."""

from __future__ import annotations

from tests.story.conftest import filed, house

__all__ = ["filed", "house"]
