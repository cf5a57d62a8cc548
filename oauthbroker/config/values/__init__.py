"""Where values come from: presets, references, environment, files, sealed secrets."""
