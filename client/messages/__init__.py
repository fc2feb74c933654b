"""Messages as they travel: their `envelope`, their `lines`, and the numbers of a publisher (`sequence`).
Sans-IO.

PROTOCOL §9. `guard_and_writer` is all that the core knows of who signs, seals and judges messages.
"""
