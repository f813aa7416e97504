"""Files: their kinds, and the jobs that make documents or knowledge of them."""
