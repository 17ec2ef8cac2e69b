"""leveret bench: loads any AMQP broker, or two in turns, from processes of its own, without a C compiler."""
