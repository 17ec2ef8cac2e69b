"""Numbers for monitoring systems: which there are, how they are collected, how Prometheus reads them."""
