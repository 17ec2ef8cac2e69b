"""Stream queues: messages stay, in order, and any number of consumers read them from any offset."""
