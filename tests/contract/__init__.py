"""What the edges of the operator do: one suite for each, the same cases for the fake and for what it stands in for.

The clock has none: it is that of the event loop, which tests replace as a whole (`tests/fakes/clock.py`).
"""
