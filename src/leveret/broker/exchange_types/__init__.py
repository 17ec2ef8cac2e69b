"""Exchange types: one matcher class each, listed in `table`."""
