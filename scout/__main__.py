"""`python -m scout` is `scoutv`."""

import sys

from scout.cli import main

sys.exit(main())
