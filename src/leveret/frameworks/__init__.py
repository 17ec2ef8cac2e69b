"""leveret's client in other projects' frameworks, each module for one of them; nothing here is imported by leveret."""
