"""Tables of reminders into delayed messages. docs/guides/spark/schedule.md."""
