"""Sealed files of streams over the HTTP API: what readers of them share."""
