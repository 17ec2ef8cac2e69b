"""The sink: rows as messages, with publisher confirms."""
