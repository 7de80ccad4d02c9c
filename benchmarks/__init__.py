"""Measurements of the whole operator, with generated modules and hooks, in a local cluster. Nothing is asserted."""
