"""The service's own decisions on invented machines under virtual time: what would happen if."""
