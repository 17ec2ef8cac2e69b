"""The settings of `leveret serve`: one table, and what reads, prints and reloads them."""
