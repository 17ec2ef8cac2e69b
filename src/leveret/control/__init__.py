"""The one door for operators: typed commands on a Unix socket in the data directory."""
