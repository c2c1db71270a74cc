"""The command line of the demo."""

import sys

from demo.cli import main

sys.exit(main())
