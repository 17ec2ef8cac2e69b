"""Schedules tables of reminders as delayed messages. See docs/guides/spark/schedule.md."""
