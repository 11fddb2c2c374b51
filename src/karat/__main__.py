"""`python -m karat` is `karat`."""

from karat.cli import leave, main

leave(main())
