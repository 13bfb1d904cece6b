"""Benchmarks: the same work done by this package and by what a user would write instead."""
