"""Messages worth believing, and messages that only a group can read: signed and sealed. PROTOCOL §9.

Nobody imports it who does not use it: it needs the extra `trust`, and cores know it by what they expect of
it.
"""
