"""What is handed to spark-submit."""
