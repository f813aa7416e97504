"""What stores and indexes of several vendors share: private files, outages, encryption, PostgreSQL connections."""
