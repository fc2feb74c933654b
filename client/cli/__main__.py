"""`python -m client.cli` is `kcast`."""

from client.cli import main

main(prog_name="kcast")
