"""The only way to the network: transport, connection pool, address checks."""
