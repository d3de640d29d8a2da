"""Prefix caches and routing: conversations with pauses, over many replicas that each keep a cache.

The service's own placement, ledger, prefix ownership and prompt rules decide.
"""
