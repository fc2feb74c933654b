"""Messages as they travel: their `envelope`, their `lines`, and the numbers of a publisher (`sequence`).
Sans-IO.

PROTOCOL §9. `guarding` is all that the core knows of who signs, seals and judges messages.
"""
