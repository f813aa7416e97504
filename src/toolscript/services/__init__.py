"""One file per use case. Surfaces call these and nothing else."""
