"""Export and import of definitions files in RabbitMQ's format (RabbitMQ, Definitions Export and Import)."""
