"""Run the command as `python -m opspec`."""

import sys

from opspec.cli import main

if __name__ == "__main__":
    sys.exit(main())
