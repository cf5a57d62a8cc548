"""What `doctor` finds: judged figures, providers that answer or do not, and who will have to agree again."""
