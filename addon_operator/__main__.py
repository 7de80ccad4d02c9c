"""`python -m addon_operator` is the command line."""

from addon_operator.cli import main

main()
