"""Publisher references: numbered publishes of clients that come back after a lost connection."""
