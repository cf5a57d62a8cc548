"""The nouns: apps and settings, turns, requests and results. Values only; no I/O."""
