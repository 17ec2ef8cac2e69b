"""Who may do what: users, permissions, logins and their limits."""
