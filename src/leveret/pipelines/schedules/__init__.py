"""Tables of reminders into delayed messages. docs/SCHEDULE.md."""
