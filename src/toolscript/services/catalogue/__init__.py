"""The write side of the catalogue: servers, sync, skills and their classification."""
