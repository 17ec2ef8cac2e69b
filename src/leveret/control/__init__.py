"""The broker's operator interface: typed commands over a Unix socket in the data directory."""
