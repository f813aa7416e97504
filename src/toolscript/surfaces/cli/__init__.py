"""The command line surface.

Limits OpenBLAS to one thread before numpy is first imported: for the small matrices of a search, its threads wait for
each other longer than they compute (5 ms instead of 0.25 ms for a product on two busy cores).
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
