"""The gateway: admits turns, lets clients follow replies, and never generates anything itself."""
