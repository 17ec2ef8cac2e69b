"""The HTTP API: RabbitMQ's paths and JSON, in a separate process that calls the broker over the control socket."""
