"""What a cluster file with 100,000 servers costs. Run `python -m tests.benchmarks.cluster`.

Times are the processor's, so that they count no waiting for it; nothing here waits for anything else.
Reading is set against reading word by word, as lines of other forms are read, in turn with it, so that the
ratio means the same on a slow or busy machine.
"""

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random

from kcast.client import cluster_reader
from kcast.client.cluster import FILE_BYTES_MAX, ClusterError, decode, parse
from kcast.client.view import View
from tests.support.word_by_word import parse_word_by_word

SERVERS = 100_000
ROUNDS = 9


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    kept = work()
    took = time.process_time() - start
    del kept
    return took


def shown(what: str, times: list[float]) -> None:
    print(f"{what:38}{statistics.median(times) * 1e3:9.1f} ms (worst {max(times) * 1e3:.1f})")


def list_of(count: int) -> bytes:
    """A signed list of servers with one IPv4 address each."""
    chance = Random(1)
    hosts = sorted(chance.sample(range(1 << 24, 224 << 24), count))
    lines = [
        f"server {host >> 24}.{host >> 16 & 255}.{host >> 8 & 255}.{host & 255}:{chance.randint(1, 65535)}\n"
        for host in hosts
    ]
    words = "version 1\ntrust 1\nvalid-after 1\nfresh-until 1\nvalid-until 1\nmin-servers 1\n"
    head = f"{cluster_reader.HEADER}\nname bench\nsalt 6b63617374\n{words}"
    return f"{head}{''.join(lines)}\n\N{EM DASH} bench/signer-0 AAAA\n".encode()


def bench_list() -> None:
    data = list_of(SERVERS)
    text = decode(data, "bench")
    fast, slow, views, topics = [], [], [], []
    for number in range(ROUNDS):
        fast.append(seconds(lambda: parse(decode(data, "bench"))))
        if number < 3:
            slow.append(seconds(lambda: parse_word_by_word(text)))
    cluster = parse(text)
    for number in range(ROUNDS):
        views.append(seconds(lambda: View(cluster)))
        view = View(cluster)
        topics.append(seconds(partial(view.servers, b"topic %d" % number)))
    print(f"{SERVERS} servers with IPv4 addresses, {len(data) / 1e6:.1f} MB")
    shown("read", fast)
    shown("read word by word", slow)
    print(f"{'ratio':38}{statistics.median(slow) / statistics.median(fast):9.1f}")
    shown("make a view", views)
    shown("a view's first topic", topics)
    del cluster, view
    gc.collect()
    tracemalloc.start()
    cluster = parse(text)
    held, peak = tracemalloc.get_traced_memory()
    print(f"{'memory of the cluster':38}{held / 1e6:9.1f} MB (at its peak {peak / 1e6:.1f})")
    view = View(cluster)
    view.servers(b"topic")
    held_too, peak = tracemalloc.get_traced_memory()
    print(
        f"{'memory of its view':38}{(held_too - held) / 1e6:9.1f} MB (at its peak {(peak - held) / 1e6:.1f})"
    )
    tracemalloc.stop()


def read_or_refused(text: str) -> None:
    with suppress(ClusterError):
        parse(text)


def bench_worst() -> None:
    """16 MiB of what takes longest."""
    print(f"\n{FILE_BYTES_MAX >> 20} MiB of")
    head = f"{cluster_reader.HEADER}\n"
    for what, lines in WORST.items():
        text = head + lines(FILE_BYTES_MAX - len(head))
        shown(what, [seconds(partial(read_or_refused, text))])


def repeated(line: str) -> Callable[[int], str]:
    return lambda size: line * (size // len(line))


def numbered(line: Callable[[int], str]) -> Callable[[int], str]:
    def lines(size: int) -> str:
        count = size // len(line(10**6))
        return "".join(map(line, range(count)))

    return lines


WORST = {
    "empty lines": repeated("\n"),
    "one line of spaces": repeated(" "),
    "one line of words": repeated("x "),
    "one line of comments": repeated("# "),
    "one line of commas": lambda size: "server " + "," * (size - 8) + "\n",
    "one line of colons": lambda size: "server " + ":" * (size - 8) + "\n",
    "one line of brackets": lambda size: "server " + "[" * (size - 8) + "\n",
    "one line of digits": lambda size: "server " + "9" * (size - 8) + "\n",
    "settings": lambda size: "policy " + "k=1 " * ((size - 7) // 4) + "\n",
    "canonical servers": numbered(lambda i: f"server 10.{i >> 16}.{i >> 8 & 255}.{i & 255}:7400\n"),
    "canonical and others": numbered(lambda i: f"server 10.{i >> 16}.{i >> 8 & 255}.{i & 255}:7400\n#\n"),
    "servers that occur twice": numbered(
        lambda i: f"server 10.{i >> 16 & 7}.{i >> 8 & 255}.{i & 255}:7400\n"
    ),
    "servers with IPv6": numbered(lambda i: f"server [{i >> 4 & 0xFFFF:x}:{i & 15:x}::]:{1 + (i >> 20)}\n"),
    "servers with names": lambda size: "names\n" + numbered(lambda i: f"server h{i}:1 key={i}\n")(size - 6),
    "other words": repeated("x-\n"),
    "em dashes after empty lines": repeated("\n\N{EM DASH} \n"),
}


if __name__ == "__main__":
    bench_list()
    bench_worst()
