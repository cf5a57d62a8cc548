"""The store in PostgreSQL, for brokers on several hosts."""
