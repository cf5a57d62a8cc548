"""The broker as a process: its listeners, what it takes from the network, its end, and its workers."""
