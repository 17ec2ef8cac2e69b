"""The lake of archived messages."""
