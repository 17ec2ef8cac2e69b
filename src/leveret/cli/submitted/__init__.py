"""Scripts that are passed to spark-submit."""
