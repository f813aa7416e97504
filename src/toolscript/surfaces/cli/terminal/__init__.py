"""What the terminal shows: tables, progress, safe text."""
