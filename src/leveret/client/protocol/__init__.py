"""AMQP 0-9-1 as a client speaks it, without sockets: both APIs of the client only move octets and time."""
