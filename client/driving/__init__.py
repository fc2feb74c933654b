"""What drivers share: `engine` makes a core's turns on a socket, and tells those who wait (`recipients`,
`inbox`).

`engine_thread` makes them in a thread. What a program waits on is in `aio_items` and `blocking_items`, what
it may give in `arguments`. A layer, as `kcast.client.sealed` is one, is called from here (`proving`), never
by the core.
"""
