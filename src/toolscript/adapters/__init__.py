"""A folder per vendor, and a folder per subject that several vendors share. Only the composition root imports them."""
