"""The file store: the write protocol of docs/store-format.md behind the port."""
