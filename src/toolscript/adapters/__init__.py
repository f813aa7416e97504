"""One file per vendor. Each implements a port; only the composition root imports them."""
