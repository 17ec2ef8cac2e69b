"""Streams with what services and other streams know, into streams. docs/ENRICH.md."""
