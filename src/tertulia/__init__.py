"""Tertulia: a chat assistant on your own machines, whose replies survive every crash."""

__version__ = "0.1.0"
