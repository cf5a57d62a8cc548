"""The kinds and resources of the plug-ins that a bundle names."""
