"""`python -m tertulia` is the command `tertulia`."""

from tertulia.cli import main

main()
