"""Messages as rows: columns, their types, bodies with a schema."""
