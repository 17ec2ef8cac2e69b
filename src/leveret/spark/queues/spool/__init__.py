"""The spool: a directory in which messages stand from before their acknowledgement until Spark is done with them."""
