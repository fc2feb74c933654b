"""`python -m kcast` is `kcast`."""

from kcast.client.cli import main

main(prog_name="kcast")
