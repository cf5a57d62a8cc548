"""Entities: what flows read and write, declared as data and kept in a database."""
