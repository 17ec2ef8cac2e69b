"""AMQP 0-9-1 bytes: grammar, methods, tables, properties and frames, without any knowledge of brokers or sockets."""
