"""A load test's lines: found all at once, they are those that one finds line by line."""

import re

from kcast.loadtest.capture.lines import count_about, find, sizes_of

MESSAGE = re.compile(rb"load/.{6} (?:.*)([0-9a-f]{16})", re.DOTALL)
SUBSCRIBE = re.compile(rb"load/([0-9]{6})")


def check(data: bytes) -> None:
    """Takes bytes as bursts, with a NUL behind each but the last."""
    bursts = [burst for burst in data.split(b"\0") if burst]
    if not bursts:
        return
    found = find(bursts, sizes_of(bursts))
    messages, subscribes, foreign = [], [], 0
    for index, burst in enumerate(bursts):
        for line in burst.split(b"\n")[:-1]:
            if message := MESSAGE.fullmatch(line):
                number = int.from_bytes(bytes.fromhex(message[1].decode()), "big", signed=True)
                messages.append((index, number, line))
            elif subscribe := SUBSCRIBE.fullmatch(line):
                subscribes.append((index, int(subscribe[1])))
            elif line and not line.startswith(b"%"):
                foreign += 1
    texts = [found.data[start:end] for start, end in zip(found.starts, found.ends, strict=True)]
    assert list(zip(found.bursts.tolist(), found.msg_ids.tolist(), texts, strict=True)) == messages
    assert (
        list(zip(found.subscribe_bursts.tolist(), found.subscribe_topics.tolist(), strict=True)) == subscribes
    )
    assert found.foreign == foreign
    assert sum(map(count_about, bursts)) >= len(messages) + len(subscribes)
