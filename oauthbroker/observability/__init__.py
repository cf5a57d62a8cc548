"""What operators see: logs, metrics and spans. None of them holds a secret."""
