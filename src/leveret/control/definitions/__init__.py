"""Definitions files, as RabbitMQ writes and reads them (Definitions Export and Import): out of a broker and into it."""
