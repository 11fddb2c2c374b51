"""Everything that can be set about a run, and how it is read from files and the command line."""
