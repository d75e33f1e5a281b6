"""`python -m trimaran`."""

from trimaran.cli import main

main()
