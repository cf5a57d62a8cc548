"""What each request passes: limits, browser checks, forms' tokens, errors, readiness."""
