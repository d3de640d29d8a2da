"""The embedded engine: a small model served from its own process, in the dialect of a replica.

It must never be imported by the gateway or the worker: the arithmetic under it can abort a process.
"""
