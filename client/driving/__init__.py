"""What drivers share: `engine` makes a core's turns on a socket, and tells those who wait.

A layer, as `kcast.client.sealed` is one, is called from here (`proving`), and never by the core.
"""
