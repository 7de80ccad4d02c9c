"""A Helm-driven addon operator with values storage: modules, hooks, queues and release decisions.

See docs/architecture.md for where things are.
"""

__version__ = "0.1.0"
