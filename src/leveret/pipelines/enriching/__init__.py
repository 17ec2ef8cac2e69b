"""Enriches streams with replies of services and with other streams. See docs/guides/spark/enrich.md."""
