"""What it costs to sign, verify, seal and open messages, beside PyNaCl's own calls, and to rekey a group.

    python -m tests.benchmarks.sealed

Each is measured in turn with what it is held to, so that the ratio means the same on a slow or busy machine.
"""

import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair

from kcast.client.requests import LINE_BYTES_MAX
from kcast.client.sealed.group_file import Term
from kcast.client.sealed.group_owner import Membership, OwnGroup
from kcast.client.sealed.group_owner import rekey as make_next
from kcast.client.sealed.keys import Identity
from kcast.client.sealed.merkle_batches import BATCH_MAX
from kcast.client.sealed.sealing import Fault, Frame, Opener
from kcast.client.sealed.signing import Signer, Verifier, parse_signature
from tests.support import sealed_lines

ROUNDS = 41
CALLS = 4 * BATCH_MAX  # of one in a round
REKEY_S_MAX = 0.1
SEED = bytes(32)
PAYLOAD = b"x" * 100
TOPIC = b"weather/oslo"
LINES = [b"%b %%@AbCdEfGhIjK.%d;t=1790000000000 %b\n" % (TOPIC, 1000 + at, PAYLOAD) for at in range(CALLS)]

Work = Callable[[], object]


class Row(NamedTuple):
    """Work on 64 messages, beside other work on as many: how many times as long it takes, and may take."""

    what: str
    ours: Work
    other: Work
    beside: str
    most: float


class Received(NamedTuple):
    """A signed line as a receiver has it: the value of `g`, and the line without it."""

    claimed: str
    unsigned: bytes


def received(lines: Iterable[bytes]) -> list[Received]:
    """Takes lines apart."""
    found = (re.fullmatch(rb"([^ ]+ [^ ]+);g=([^ ;]+)( .*\n)", line) for line in lines)
    return [Received(each[2].decode(), each[1] + each[3]) for each in found if each]


def verify(messages: list[Received]) -> None:
    """Verifies messages, by a verifier that has not met them."""
    verifier = Verifier()
    for text, unsigned in messages:
        claimed = parse_signature(text)
        assert claimed is not None and verifier.is_signed(claimed, unsigned)


def signing_rows() -> Iterator[Row]:
    """Yields what signing and verifying is held to."""
    signer = Signer(SEED)
    public, secret = crypto_sign_seed_keypair(SEED)
    texts = [b"kcast-sign 1\n" + line for line in LINES]
    notes = [crypto_sign(text, secret) for text in texts]
    alone = received(map(signer.sign, LINES))
    batched = received(signer.sign_many(LINES, LINE_BYTES_MAX))
    assert len(alone) == len(batched) == CALLS

    def sign_alone() -> None:
        for line in LINES:
            signer.sign(line)

    def sign_by_library() -> None:
        for text in texts:
            crypto_sign(text, secret)

    def verify_by_library() -> None:
        for note in notes:
            crypto_sign_open(note, public)

    def sign_batches() -> None:
        signer.sign_many(LINES, LINE_BYTES_MAX)

    def verify_alone() -> None:
        verify(alone)

    def verify_batches() -> None:
        verify(batched)

    yield Row("sign", sign_alone, sign_by_library, "the library's call", 1.4)
    yield Row("verify", verify_alone, verify_by_library, "the library's call", 1.4)
    yield Row("sign, batch of 16", sign_batches, sign_alone, "a single one", 0.25)
    yield Row("verify, batch of 16", verify_batches, verify_alone, "a single one", 0.25)


def sealing_rows() -> Iterator[Row]:
    """Yields what sealing and opening is held to, of short messages and of the longest."""
    public, secret = crypto_sign_seed_keypair(SEED)
    notes = [crypto_sign(b"kcast-sign 1\n" + line, secret) for line in LINES]

    def verify_by_library() -> None:
        for note in notes:
            crypto_sign_open(note, public)

    topic = sealed_lines.topic(TOPIC)
    writer, opener = sealed_lines.sealer(), Opener(sealed_lines.epoch())
    longest = writer.room(topic, 1000, is_signed=False)
    for size in (len(PAYLOAD), longest):
        message = Frame(b"x" * size, sealed_lines.SENT_MS)
        lines = [writer.line(topic, seq, message, None) for seq in range(1000, 1000 + CALLS)]
        arguments = [sealed_lines.sound_parts(line)[:-1] for line in lines]

        def seal(message: Frame = message) -> None:
            for seq in range(1000, 1000 + CALLS):
                writer.line(topic, seq, message, None)

        def unseal(arguments: list[tuple[bytes, bytes, bytes, int, bytes, bytes]] = arguments) -> None:
            for each in arguments:
                assert not isinstance(opener.open(*each), Fault)

        yield Row(f"seal, {size} bytes", seal, verify_by_library, "a verification", 0.25)
        yield Row(f"open, {size} bytes", unseal, verify_by_library, "a verification", 0.25)


def rekey(members: int = 100) -> float:
    """Returns how long it takes to make and sign the next epoch of a group, in seconds."""
    owner = Identity.from_seed("owner", SEED)
    others = (Identity.from_seed("member", number.to_bytes(32, "big")) for number in range(1, members + 1))
    words = tuple(Membership.of(member.member_word) for member in others)
    group = OwnGroup("ops", owner.note_key.verifier, words, (Term(1, 0, 1, 2),))
    start = time.perf_counter()
    term = group.next_term(2.0, is_now=True)
    _, file, _ = make_next(group, owner.note_key, term)
    took_s = time.perf_counter() - start
    assert len(file.members) == members
    return took_s


def bench_rekey() -> None:
    """Prints what it takes to rekey a group of 100."""
    took_s = statistics.median(rekey() for _ in range(ROUNDS // 4))
    bar = f"{'under' if took_s < REKEY_S_MAX else 'ABOVE ITS BAR,'} {REKEY_S_MAX:g} s"
    print(f"rekey a group of 100     {took_s * 1e3:7.1f} ms ({bar})", flush=True)


def us_each(work: Work) -> float:
    """Returns how long a message takes, in microseconds."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) / CALLS * 1e6


def bench(row: Row) -> None:
    """Prints what a message takes, and how many times the other that is."""
    pairs = [(us_each(row.ours), us_each(row.other)) for _ in range(ROUNDS)]
    us = statistics.median(ours for ours, _ in pairs)
    ratio = statistics.median(ours / other for ours, other in pairs)
    bar = f"{'at most' if ratio <= row.most else 'ABOVE ITS BAR,'} {row.most:.2f}"
    print(f"{row.what:24} {us:7.1f} us, {ratio:.2f} times {row.beside} ({bar})", flush=True)


def main() -> None:
    """Prints a line for each row, and for each kind of line how long it is."""
    alone = len(Signer(SEED).sign(LINES[0]))
    batched = max(map(len, Signer(SEED).sign_many(LINES[:BATCH_MAX], LINE_BYTES_MAX)))
    print(f"100 bytes on a topic of 12: a line of {alone} bytes signed, of {batched} in a batch of 16")
    writer, hidden = sealed_lines.sealer(), sealed_lines.topic(TOPIC)
    message = Frame(PAYLOAD, sealed_lines.SENT_MS)
    sealed, both = (len(writer.line(hidden, 1000, message, signer)) for signer in (None, Signer(SEED)))
    print(f"on a hidden topic: a line of {sealed} bytes sealed, of {both} sealed and signed")
    room, room_of_both = (writer.room(hidden, 1000, is_signed=is_signed) for is_signed in (False, True))
    print(f"there, at most {room} bytes fit sealed, and {room_of_both} sealed and signed")
    for row in (*signing_rows(), *sealing_rows()):
        bench(row)
    bench_rekey()


if __name__ == "__main__":
    main()
