"""Read YAML files into resources, each value with its place."""
