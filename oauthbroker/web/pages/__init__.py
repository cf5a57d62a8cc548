"""The pages that people open, and their routes."""
