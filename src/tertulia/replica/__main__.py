"""`python -m tertulia.replica`: the embedded engine on its own; it must hold no logic."""

import sys

from tertulia.replica.main import main

sys.exit(main(sys.argv[1:]))
