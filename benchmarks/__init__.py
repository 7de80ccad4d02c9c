"""Measurements of the whole operator against generated modules, in a local control plane. Nothing is asserted."""
