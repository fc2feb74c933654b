"""`python -m kcast.client.cli` is `kcast`."""

from kcast.client.cli import main

main(prog_name="kcast")
