"""Schedules tables of reminders as delayed messages. See docs/SCHEDULE.md."""
