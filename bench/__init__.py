"""Measurements of this machine's own speed: ratios and CPU per work, never a test's gate."""
