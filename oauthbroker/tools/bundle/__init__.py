"""The kinds of a tool bundle, their entry files, and loading them."""
