"""What pages consist of: templates, words, forms, times."""
