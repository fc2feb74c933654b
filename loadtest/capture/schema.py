"""The tables of a capture: names, columns, types and meanings.

Plain data for any kind of reader. docs/capture.md describes the same for people; a test keeps both equal.

All times are ns of one clock: the monotonic clock of the machine that coordinated the run. The `clock` table
has the errors of other machines' clocks. Servers, topics, publishers and subscribers are numbers; `run.json`
has their names.
"""

from typing import Literal, NamedTuple

SCHEMA_VERSION = 1

Type = Literal["int8", "int16", "int32", "int64", "float64", "string", "list<int32>"]


class Column(NamedTuple):
    """A column. No value is ever null."""

    name: str
    type: Type
    meaning: str


# What the load test itself did to a datagram on a leg: columns `injected`.
PASSED = 0
LOST = 1  # by --loss-in or --loss-out
CUT_OFF = 2  # the server was isolated, or mute
DUPLICATE = 3  # passed, and is the extra copy made by --duplicate

# Changes of a lease: column `change`.
OPENED, EXPIRED, EVICTED, STANDING = 1, 2, 3, 4

NONE = -1  # in columns of ids: nobody of this run, or unknown

TABLES: dict[str, tuple[Column, ...]] = {
    "publish": (
        Column("msg_id", "int64", "publisher * 2^32 + number of the message, from 0"),
        Column("pub_id", "int32", "the publisher"),
        Column("topic_id", "int32", "the topic"),
        Column("digest", "int64", "XXH3-64 of its line without LF, as in taps, signed; 0: it was never sent"),
        Column("t_intended_ns", "int64", "when it was to be published"),
        Column("t_send_ns", "int64", "when it was given to the client"),
        Column("size_bytes", "int32", "size of its line, with LF"),
    ),
    "pub_tx": (
        Column("msg_id", "int64", ""),
        Column("pub_id", "int32", ""),
        Column("server_id", "int32", "the server that it was sent to"),
        Column("t_tx_ns", "int64", "when it was sent, or would have been"),
        Column("injected", "int8", "0 passed, 1 lost, 2 cut off, 3 an extra copy"),
    ),
    "server_rx": (
        Column("server_id", "int32", ""),
        Column("boot_id", "int64", "the life of the server that took it"),
        Column("msg_id", "int64", "-1: no message of this run"),
        Column("pub_id", "int32", "the publisher, by the address it came from"),
        Column("topic_id", "int32", ""),
        Column("t_rx_ns", "int64", "when the server took it"),
    ),
    "lease": (
        Column("server_id", "int32", ""),
        Column("boot_id", "int64", ""),
        Column("sub_id", "int32", "the subscriber, by the address that holds it"),
        Column("topic_id", "int32", ""),
        Column("t_ns", "int64", ""),
        Column("change", "int8", "1 opened, 2 expired, 3 evicted, 4 stood when the tap began or went on"),
    ),
    "server_life": (
        Column("server_id", "int32", ""),
        Column("boot_id", "int64", ""),
        Column("t_from_ns", "int64", "when its tap begins"),
        Column("t_to_ns", "int64", "when its tap ends; the last record of one that was killed"),
        Column("lost_lines", "int64", "lines that the tap could not write"),
        Column("ended", "int8", "1: stopped properly, 0: cut short"),
    ),
    "deliver": (
        Column("sub_id", "int32", "the subscriber that a copy was sent to"),
        Column("msg_id", "int64", ""),
        Column("server_id", "int32", "the server that sent it"),
        Column("t_kernel_ns", "int64", "when the kernel received it; 0: unknown"),
        Column("t_user_ns", "int64", "when the client took it"),
        Column("injected", "int8", "0 passed, 1 lost, 2 cut off, 3 an extra copy"),
    ),
    "subscribe": (
        Column("sub_id", "int32", "the subscriber that asked for a lease, or renewed it"),
        Column("topic_id", "int32", ""),
        Column("server_id", "int32", ""),
        Column("t_tx_ns", "int64", ""),
        Column("injected", "int8", "0 passed, 1 lost, 2 cut off, 3 an extra copy"),
    ),
    "intent": (
        Column("sub_id", "int32", "the subscriber"),
        Column("topic_id", "int32", "the topic that it should receive"),
        Column("t_from_ns", "int64", "all its leases stand from then on"),
        Column("t_to_ns", "int64", "it should receive messages intended before then"),
    ),
    "window": (
        Column("pub_id", "int32", "the publisher"),
        Column("t_from_ns", "int64", ""),
        Column("t_to_ns", "int64", ""),
        Column("scheduled", "int64", "number of messages intended in this time"),
    ),
    "outage": (
        Column("server_id", "int32", ""),
        Column("epoch", "int32", "epoch of the plan"),
        Column("t_down_ns", "int64", "when it really went down"),
        Column("t_up_ns", "int64", "when it was up again"),
        Column("kind", "string", "isolation, mute, kill, stall"),
        Column("plan", "string", "independent, exact, zones, rolling"),
    ),
    "member": (
        Column("client_id", "int32", "the client, which has one socket"),
        Column("pub_id", "int32", "-1: it does not publish"),
        Column("sub_id", "int32", "-1: it does not subscribe"),
        Column("port", "int32", "the port of its socket"),
        Column("publisher", "string", "its publisher name in envelopes"),
        Column("process", "string", "the process that it ran in"),
        Column("t_ns", "int64", ""),
        Column("servers", "list<int32>", "the servers that it knew"),
    ),
    "entry": (
        Column("sub_id", "int32", "the subscriber whose log told it an entry"),
        Column("msg_id", "int64", ""),
        Column("t_ns", "int64", "when it did"),
    ),
    "sighting": (
        Column("sub_id", "int32", "the subscriber whose client told it"),
        Column("t_ns", "int64", ""),
        Column(
            "what",
            "string",
            "joined, left, silent: a member; limited: it sent more than the limit",
        ),
        Column("name", "string", "whom it is about: a publisher name"),
    ),
    "client_stat": (
        Column("client_id", "int32", ""),
        Column("t_ns", "int64", "once a second; counts since the client was opened"),
        Column("copies", "int64", "received lines that are no control lines"),
        Column("deliveries", "int64", ""),
        Column("duplicates", "int64", ""),
        Column("slow_consumer", "int64", "deliveries dropped because the user did not take them"),
        Column(
            "kernel_drops", "int64", "datagrams that the kernel dropped because they were not read in time"
        ),
        Column("send_errors", "int64", "datagrams not sent"),
    ),
    "process_stat": (
        Column("process", "string", ""),
        Column("t_ns", "int64", "once a second"),
        Column("cpu_ns", "int64", "since the process began"),
        Column("rss_bytes", "int64", ""),
        Column("lag_max_ns", "int64", "largest delay of its loop in this second"),
        Column("rows_waiting", "int64", "rows that the recorder had not written yet"),
        Column("rows_lost", "int64", "rows that it could not keep"),
    ),
    "server_stat": (
        Column("server_id", "int32", ""),
        Column("t_ns", "int64", "once a second"),
        Column("cpu_ns", "int64", "of its process, since that began"),
        Column("rss_bytes", "int64", "of its process"),
        Column("kernel_drops", "int64", "of its socket, since it was opened"),
        Column("queue_bytes", "int64", "bytes that wait in its socket"),
    ),
    "clock": (
        Column("process", "string", "the process whose clock it is"),
        Column("t_ns", "int64", ""),
        Column("offset_ns", "int64", "what was added to its clock"),
        Column("error_ns", "int64", "largest error of that; 0 on the coordinator's machine"),
    ),
}
