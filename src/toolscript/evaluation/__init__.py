"""Measures search quality: reads evaluation sets, runs them through the services, computes metrics."""
