"""The smart client: view, handshakes, leases, sends, de-duplication; its drivers; the `kcast` command."""
