"""Durable events for agents: the queue, the relay that fills it, and the calls that wait for an outcome."""
