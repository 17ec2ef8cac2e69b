"""leveret bench: loads any AMQP broker, or two alternately, from processes of its own, without a C compiler."""
