"""Messages worth believing, and messages that only a group can read: signed and sealed.

PROTOCOL §9.6 to §9.9.

It needs the extra `trust`. Only who signs, verifies or seals imports it: other clients start without it.
"""
