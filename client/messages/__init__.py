"""Messages as they travel: envelope, line, and the numbers of a publisher. Sans-IO. PROTOCOL §9.

`guarding` is all that the core knows of who signs, seals and judges messages.
"""
