"""AMQP 0-9-1 bytes: grammar, methods, tables, properties and frames. Knows nothing of brokers or sockets."""
