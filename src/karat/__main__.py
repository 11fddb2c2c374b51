"""`python -m karat` is `karat`."""

import sys

from karat.cli import main

sys.exit(main())
