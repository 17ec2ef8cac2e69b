"""Stream queues: what arrives stays, in order, and any number of consumers read it from where they like."""
