"""The settings of `leveret serve`: their table, and code to read, print and reload them."""
