"""Concrete back ends of the ports. Only the wiring names them, and none imports a lane."""
