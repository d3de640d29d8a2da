"""The fault plan over real processes: a fleet, a nemesis with a seed, a checker of histories."""
