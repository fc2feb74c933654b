"""The `kcast` command: `main`."""

try:
    from kcast.client.cli.group import main
except KeyboardInterrupt:  # while modules are being loaded; later the group handles it
    raise SystemExit(130) from None

__all__ = ["main"]
