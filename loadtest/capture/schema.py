"""The tables of a capture: names, columns, types, and what each means.

Plain data, so that readers of any kind can use it; docs/capture.md describes the same for people, and a test
holds the two together.

All times are ns of one clock, the monotonic clock of the machine on which the run was led (the `clock` table
tells how well others' were known). Numbers stand for servers, topics, publishers and subscribers: `run.json`
has their names.
"""

from typing import Literal, NamedTuple

SCHEMA_VERSION = 1

Type = Literal["int8", "int16", "int32", "int64", "float64", "string", "list<int32>"]


class Column(NamedTuple):
    """A column; none is ever null."""

    name: str
    type: Type
    meaning: str


# What became of a datagram on a leg, by the harness's own doing: columns `injected`.
PASSED = 0
LOST = 1  # by the loss that was asked for
CUT_OFF = 2  # the server was isolated
DUPLICATE = 3  # passed, and is the extra copy that was asked for

# Changes of a lease: column `change`.
OPENED, EXPIRED, EVICTED, STANDING = 1, 2, 3, 4

NONE = -1  # in columns with numbers: nobody of this run, or not known

TABLES: dict[str, tuple[Column, ...]] = {
    "publish": (
        Column("msg_id", "int64", "publisher << 32 | number of the message, from 0"),
        Column("pub_id", "int32", "who published it"),
        Column("topic_id", "int32", "on what"),
        Column("digest", "int64", "XXH3-64 of its line without LF, as in taps, signed; 0: it never left"),
        Column("t_intended_ns", "int64", "when it was to be published"),
        Column("t_send_ns", "int64", "when the client was given it"),
        Column("size_bytes", "int32", "its line, with LF"),
    ),
    "pub_tx": (
        Column("msg_id", "int64", ""),
        Column("pub_id", "int32", ""),
        Column("server_id", "int32", "where it was sent"),
        Column("t_tx_ns", "int64", "when it left, or would have"),
        Column("injected", "int8", "0 passed, 1 lost, 2 cut off, 3 an extra copy"),
    ),
    "server_rx": (
        Column("server_id", "int32", ""),
        Column("boot_id", "int64", "one life of the server"),
        Column("msg_id", "int64", "-1: none of this run's"),
        Column("pub_id", "int32", "by the address it came from"),
        Column("topic_id", "int32", ""),
        Column("t_rx_ns", "int64", "when the server took it"),
    ),
    "lease": (
        Column("server_id", "int32", ""),
        Column("boot_id", "int64", ""),
        Column("sub_id", "int32", "by the address that holds it"),
        Column("topic_id", "int32", ""),
        Column("t_ns", "int64", ""),
        Column("change", "int8", "1 opened, 2 expired, 3 evicted, 4 stood when the tap began or went on"),
    ),
    "server_life": (
        Column("server_id", "int32", ""),
        Column("boot_id", "int64", ""),
        Column("t_from_ns", "int64", "when its tap begins"),
        Column("t_to_ns", "int64", "when its tap ends; the last record of one that was killed"),
        Column("lost_lines", "int64", "what the tap could not write"),
        Column("ended", "int8", "1: stopped in order, 0: cut short"),
    ),
    "deliver": (
        Column("sub_id", "int32", "who was sent a copy"),
        Column("msg_id", "int64", ""),
        Column("server_id", "int32", "by whom"),
        Column("t_kernel_ns", "int64", "when the kernel took it in; 0: not known"),
        Column("t_user_ns", "int64", "when the client took it"),
        Column("injected", "int8", "0 passed, 1 lost, 2 cut off, 3 an extra copy"),
    ),
    "subscribe": (
        Column("sub_id", "int32", "who asked for a lease, or renewed it"),
        Column("topic_id", "int32", ""),
        Column("server_id", "int32", ""),
        Column("t_tx_ns", "int64", ""),
        Column("injected", "int8", "0 passed, 1 lost, 2 cut off, 3 an extra copy"),
    ),
    "intent": (
        Column("sub_id", "int32", "who should receive"),
        Column("topic_id", "int32", "what is published on this topic"),
        Column("t_from_ns", "int64", "from this time on: all leases stood"),
        Column("t_to_ns", "int64", "until then, by the time it was to be published"),
    ),
    "window": (
        Column("pub_id", "int32", "who was to publish"),
        Column("t_from_ns", "int64", ""),
        Column("t_to_ns", "int64", ""),
        Column("scheduled", "int64", "messages intended between the two"),
    ),
    "outage": (
        Column("server_id", "int32", ""),
        Column("epoch", "int32", "which epoch of the plan it belongs to"),
        Column("t_down_ns", "int64", "when it was down in fact, from"),
        Column("t_up_ns", "int64", "until"),
        Column("kind", "string", "isolation, kill, stall"),
        Column("plan", "string", "independent, exact, zones, rolling"),
    ),
    "member": (
        Column("client_id", "int32", "one socket"),
        Column("pub_id", "int32", "-1: it does not publish"),
        Column("sub_id", "int32", "-1: it does not subscribe"),
        Column("port", "int32", "the socket's"),
        Column("publisher", "string", "its name in the envelope"),
        Column("process", "string", "where it ran"),
        Column("t_ns", "int64", ""),
        Column("servers", "list<int32>", "those it knew"),
    ),
    "client_stat": (
        Column("client_id", "int32", ""),
        Column("t_ns", "int64", "once a second; counts since the client was opened"),
        Column("copies", "int64", "lines taken that are no control lines"),
        Column("deliveries", "int64", ""),
        Column("duplicates", "int64", ""),
        Column("slow_consumer", "int64", "delivered, and dropped because nobody took it"),
        Column("kernel_drops", "int64", "datagrams the kernel dropped because they were not read in time"),
        Column("send_errors", "int64", "datagrams not sent"),
    ),
    "process_stat": (
        Column("process", "string", ""),
        Column("t_ns", "int64", "once a second"),
        Column("cpu_ns", "int64", "since it began"),
        Column("rss_bytes", "int64", ""),
        Column("lag_max_ns", "int64", "by how much its loop was late at most, this second"),
        Column("rows_waiting", "int64", "what the recorder had not written yet"),
        Column("rows_lost", "int64", "what it could not keep"),
    ),
    "server_stat": (
        Column("server_id", "int32", ""),
        Column("t_ns", "int64", "once a second"),
        Column("cpu_ns", "int64", "since it began; of its process"),
        Column("rss_bytes", "int64", "of its process"),
        Column("kernel_drops", "int64", "of its socket, since it was opened"),
        Column("queue_bytes", "int64", "what waits in its socket"),
    ),
    "clock": (
        Column("process", "string", "whose clock"),
        Column("t_ns", "int64", ""),
        Column("offset_ns", "int64", "to be added to its clock; it has been"),
        Column("error_ns", "int64", "how far off that may be; 0 on the machine that led"),
    ),
}
