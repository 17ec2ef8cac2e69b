"""Where a message would go, and why: the broker's own matchers decide, and each decision is put into words."""
