"""Runs of flows: the execution contract, its nodes, and their ports to the outside."""
