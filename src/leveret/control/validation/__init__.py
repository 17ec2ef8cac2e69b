"""Validation of policies and parameters."""
