"""The `kcast` command: `main`."""

try:
    from kcast.client.cli.group import main
except KeyboardInterrupt:  # while it is still being loaded: as the group itself does later
    raise SystemExit(130) from None

__all__ = ["main"]
