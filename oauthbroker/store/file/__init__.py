"""The file store: the write protocol of store/README.md behind the port."""
