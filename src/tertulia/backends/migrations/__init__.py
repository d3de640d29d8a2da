"""Schemas, forward only: a tree of versions for each database, run before anything opens it."""

from __future__ import annotations


class NewerSchema(Exception):
    """The data was written by a newer version: refuse it instead of guessing."""
