"""The command line surface.

What it starts computes with small matrices on few and busy cores, where numpy's own threads wait for each other for
longer than they compute: a product that takes a quarter of a millisecond took five. It has to be said before numpy is
first imported.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
