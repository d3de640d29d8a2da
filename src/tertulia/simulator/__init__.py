"""What would happen if: the service's own decisions, on invented machines, under virtual time.

It rolls its dice from a seed and reads no clock: the same scenario and seed give the same bytes.
"""
