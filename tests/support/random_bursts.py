"""Random bursts of publishes."""

import random


def random_burst(rng: random.Random) -> tuple[bytes, int]:
    """Mostly what a busy publisher sends: equal segments of one topic; spoilt in one way or another."""
    segment_bytes = rng.choice((8, 20, 64, 130, 300, 1200, 1201))
    topics = rng.choice(([b"t"], [b"t"], [b"t"], [b"t", b"u"], [b"%74"], [b"nobody"], [b"t", b""], [b""]))
    parts = []
    for _ in range(rng.randint(2, 5)):
        segment = b""
        while True:
            message = b"m" * rng.choice((0, 0, 1, 3, 30)) + rng.choice((b"", b"", b" ", b"t ", b"%41", b"\r"))
            line = rng.choice(topics) + b" " + message + b"\n"
            if rng.random() < 0.01:
                line = rng.choice(
                    (b"t\n", b"%~ N\n", b"%? N\n", b"\xff\n", b"\n", b"t", b"tt m\n", b" t m\n")
                )
            if len(segment) + len(line) > segment_bytes:
                break
            segment += line
            if rng.random() < 0.05:
                break
        cut_free = rng.random() < 0.1
        parts.append(segment if cut_free else segment.ljust(segment_bytes, b"\n"))
    data = b"".join(parts)
    return (data[: -rng.randint(1, 9)] if rng.random() < 0.2 else data), segment_bytes
