"""Between the broker and the disk: batches, pages, stream files, tables."""
