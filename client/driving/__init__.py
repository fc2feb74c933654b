"""What drivers share: `engine` makes a core's turns on a socket, and tells those who wait (`recipients`,
`inbox`).

`engine_thread` makes them in a thread. What a program waits on is in `aio_items` and `blocking_items`, what
it may give in `arguments`.

A layer is called from here, by `proving`, which shows how: it gives the core a `Writer` or a `Guard`
(`kcast.client.messages.guarding`) for a topic, and the core knows no more of it; `Engine` asks it when it has
something to do (`look_at`, `begin_at`), and has it do that (`look`).
"""
