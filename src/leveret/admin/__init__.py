"""The HTTP API: RabbitMQ's paths and JSON, in a process of its own that asks the broker over the control socket."""
