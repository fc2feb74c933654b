"""What drivers share: `engine` makes a core's turns on a socket, and tells those who wait (`recipients`,
`inbox`).

`engine_thread` makes them in a thread. What a program waits on is in `aio_items` and `blocking_items`, what
it may give in `arguments`.

Layers are called from here, in the three ways that docs/architecture.md names: by `watches`, by `protection`,
which gives the core a `Writer` or a `Guard` for a topic, and on ticks.
"""
