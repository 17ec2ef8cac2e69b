"""The sink: rows as messages, confirmed."""
