"""Stages: messages that wait for the release of their batch."""
