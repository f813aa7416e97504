"""Files of rows: tables, JSON and logs."""
