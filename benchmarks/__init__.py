"""Speed of Toolscript, measured beside a reference in the same run because machines are noisy."""
