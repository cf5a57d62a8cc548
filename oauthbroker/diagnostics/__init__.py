"""Whether a broker is well: health, findings of `doctor`, forecast, probes."""
