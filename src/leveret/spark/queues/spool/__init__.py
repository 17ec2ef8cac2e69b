"""The spool: a directory that keeps messages from before their acknowledgement until Spark is done with them."""
