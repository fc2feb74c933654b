"""What a router is to return, written as PROTOCOL §4.3 says it: line by line."""

from collections.abc import Sequence

from kcast.pubsub import wire
from kcast.pubsub.endpoint import Address, Transmit, datagrams
from kcast.pubsub.limits import DATAGRAM_BYTES_MAX
from kcast.pubsub.router import Many, PackerLike, Route, Router, Routes, Survey


class RouteTable(dict[bytes, Route]):
    """Routes of some topics; others are empty."""

    def __missing__(self, topic: bytes) -> Route:
        return ()


def survey(data: bytes, segment_bytes: int, lines_max: int, routes: Routes) -> Survey | None:
    """What `Router.survey` is to return."""
    lines: list[bytes] = []
    for datagram in datagrams(data, segment_bytes):
        of_datagram, is_unterminated = wire.split_lines(datagram)
        if is_unterminated or len(of_datagram) > lines_max:
            return None
        lines += of_datagram
    if not lines or any(wire.is_control(line) or b" " not in line for line in lines):
        return None
    counts = [len(routes[topic_of(line)]) for line in lines]
    copies, topics = sum(counts), set(map(topic_of, lines))
    if len(data) > segment_bytes and len(topics) == 1 and copies and data[:1] != b"\n":
        return Survey(len(lines), copies, len(data) * counts[0], *topics)
    size_bytes = sum(len(line) * count for line, count in zip(lines, counts, strict=True))
    return Survey(len(lines), copies, size_bytes, None)


class NaivePacker:
    """What a packer is to do."""

    def __init__(self) -> None:
        self.lines_of: dict[Address, list[bytes]] = {}

    def add(self, data: bytes, routes: Routes) -> tuple[int, int, list[bytes]]:
        copies, size_bytes, left = 0, 0, []
        for line in wire.split_lines(data)[0]:
            route = routes[topic_of(line)]
            if isinstance(route, Many) or not route:
                left.append(line)
                continue
            for address in route:
                self.lines_of.setdefault(address, []).append(line)
                copies, size_bytes = copies + 1, size_bytes + len(line)
        return copies, size_bytes, left

    def add_for(self, data: bytes, addresses: Sequence[Address]) -> None:
        for address in addresses:
            self.lines_of.setdefault(address, []).extend(wire.split_lines(data)[0])

    def datagrams_of(self, mark: bytes) -> dict[Address, list[bytes]]:
        """The lines of each subscriber, as many in a datagram as go in."""
        datagrams_of: dict[Address, list[bytes]] = {}
        for address, lines in self.lines_of.items():
            filled: list[bytes] = []
            for line in lines:
                if not filled or len(filled[-1]) + len(line) + 1 > DATAGRAM_BYTES_MAX:
                    filled.append(mark)
                filled[-1] += line + b"\n"
            datagrams_of[address] = filled
        return datagrams_of


def topic_of(line: bytes) -> bytes:
    return line.partition(b" ")[0]


def check_survey(router: Router, data: bytes, segment_bytes: int, lines_max: int, routes: Routes) -> bool:
    """Holds a router to what it is to say of datagrams; returns whether they are only publishes."""
    found = router.survey(data, segment_bytes, lines_max, routes)
    expected = survey(data, segment_bytes, lines_max, routes)
    assert found == expected, f"{found} of {data!r}, which is {expected}"
    return expected is not None


def check_packer(packer: PackerLike, texts: Sequence[bytes], routes: Routes, mark: bytes) -> list[Transmit]:
    """Holds a packer to what it is to do with these publishes; returns what it packed."""
    naive = NaivePacker()
    for number, text in enumerate(texts):
        if number % 4 == 3:
            route = routes[topic_of(text.lstrip(b"\n"))]
            addresses = () if isinstance(route, Many) else route
            packer.add_for(text, addresses)
            naive.add_for(text, addresses)
        else:
            assert packer.add(text, routes) == naive.add(text, routes)
        assert len(packer) == len(naive.lines_of)
    packed = list(packer.pack(mark))
    assert len(packer) == 0 and packer.pack(mark) == []
    expected = naive.datagrams_of(mark)
    found = {address: each for each in packed for address in each.destinations}
    assert sum(len(each.destinations) for each in packed) == len(found)
    assert found.keys() == expected.keys()
    for address, (data, segment_bytes, _, line_count) in found.items():
        cut = list(datagrams(data, segment_bytes))
        longest = max(map(len, expected[address]))
        assert cut == [each.ljust(longest, b"\n") for each in expected[address][:-1]] + expected[address][-1:]
        assert segment_bytes == longest and line_count == len(naive.lines_of[address])
    assert len({tuple(naive.lines_of[each.destinations[0]]) for each in packed}) == len(packed), (
        "packed twice"
    )
    return packed
