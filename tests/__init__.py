"""Everything that must hold; scripts/test runs it all."""
