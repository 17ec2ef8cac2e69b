"""The processes of the demo, each with one part to play."""
