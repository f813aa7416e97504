"""The one pipeline: prepare a query once, rank it several ways, fuse the rankings. Pure where it can be."""
