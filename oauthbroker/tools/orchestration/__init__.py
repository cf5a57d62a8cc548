"""Agent processes and their orchestrator (specification 002, sections 2.6 and 11)."""
