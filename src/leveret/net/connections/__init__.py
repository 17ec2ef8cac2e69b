"""Client connections: sockets, TLS, admission and logins."""
