"""Entry point of `python -m lab.demo`."""

import sys

from lab.demo.cli import main

sys.exit(main())
