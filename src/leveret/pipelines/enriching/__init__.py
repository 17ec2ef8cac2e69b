"""Enriches streams with replies of services and with other streams. See docs/ENRICH.md."""
