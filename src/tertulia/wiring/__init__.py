"""Puts real parts together: the only place that names concrete back ends.

It decides nothing about turns; it opens, connects, runs and closes. One module for each role
(`gateway`, `worker`, and `lanes` for both in one process), so that a role loads what it needs.
"""
