"""End grants: here at once, at the provider as soon as it answers."""
