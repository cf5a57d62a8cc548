"""The broker as a process: listeners, HTTP/1.1 limits, shutdown, and workers."""
