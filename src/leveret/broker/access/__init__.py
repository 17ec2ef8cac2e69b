"""Access control: users, permissions, logins and their limits."""
