"""Keeping a grant's token fresh: one refresh transaction per pair, its write-back, circuits, and background work."""
