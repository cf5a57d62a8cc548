"""Models: their port, and the adapter for models of many providers."""
