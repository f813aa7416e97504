"""What goes around a model of any vendor: batches, cached vectors, and rerankers behind a URL."""
