"""Throw-away fleets on this machine: real servers and processes, to see what breaks and holds."""
