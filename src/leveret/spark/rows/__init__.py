"""Messages as rows: columns, their types, and bodies that are parsed by a schema."""
