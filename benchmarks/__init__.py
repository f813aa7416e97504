"""How fast Toolscript is, measured beside something else in the same run because machines are noisy."""
