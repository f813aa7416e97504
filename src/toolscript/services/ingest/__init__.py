"""Ingestion: finds and reads files, and makes documents or knowledge of them, as jobs that survive crashes."""
