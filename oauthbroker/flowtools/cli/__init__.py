"""The commands of flow tools."""
