"""`python -m postroom.cli`, for where the script is not on the path."""

import sys

from postroom.cli import main

sys.exit(main())
