"""Files that survive a crash and are safe to read: written whole or not at all, locked, without code in them."""
