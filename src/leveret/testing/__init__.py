"""What users and leveret's own tests share: brokers in processes of their own, for tests and measurements."""
