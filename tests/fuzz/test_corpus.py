"""The corpora, and seeded mutants of them, against each target: no atheris is needed for that."""

import gc
import sys
from pathlib import Path
from random import Random

import pytest

from kcast.client.events import Drop as ClientDrop
from kcast.pubsub.drops import Drop as ServerDrop
from tests.fuzz import client, server
from tests.fuzz.seeds import seeds_of
from tests.fuzz.smallest import smallest
from tests.fuzz.targets import CORPUS, TARGETS, check_of, corpus_of
from tests.support.forms import Seeds

CORPUS_BYTES_MAX = 300_000
PROOF_DROPS = {
    *(ClientDrop.UNSIGNED, ClientDrop.BAD_SIGNATURE, ClientDrop.UNAUTHORISED, ClientDrop.TOO_OLD),
    *(ClientDrop.FROM_FUTURE, ClientDrop.REPLAYED, ClientDrop.NOT_SEALED, ClientDrop.UNKNOWN_KEY),
    *(ClientDrop.NOT_OPENED, ClientDrop.COVER),
}  # where a subscription takes no message without proof
LAYER_DROPS = {
    ClientDrop.BAD_BEACON,
    ClientDrop.LIMITED,
    ClientDrop.UNAWAITED,
}  # of groups, requests and logs
LAYER_DROPS |= {ClientDrop.NOT_KEPT, ClientDrop.WRONG_CLOCK}
DELIMITERS = (b"\0", b"\n", b" ", b"\xfe", b"%", b"\xff" * 8)


def inputs_of(name: str) -> list[bytes]:
    return [*seeds_of(name), *(path.read_bytes() for path in corpus_of(name))]


def test_a_servers_core_leaves_no_cyclic_garbage() -> None:
    """Since `kcast serve` looks for old garbage hardly ever."""
    server.run(b"")  # what is imported late
    gc.collect()
    gc.disable()
    try:
        kept = [server.run(data) for data in inputs_of("server")]
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert kept and not [each for each in gc.garbage if type(each).__module__.startswith("kcast")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def mutant_of(inputs: list[bytes], rng: Random) -> bytes:
    """An input with a few changes: bytes put in, taken out, set, or taken from another input."""
    data = bytearray(rng.choice(inputs))
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, size = rng.randint(0, len(data)), rng.randint(1, 20)
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + size]
            case 2:
                data[at:at] = rng.choice(DELIMITERS)
            case 3:
                data[at:at] = data[at : at + size]
            case _:
                other = rng.choice(inputs)
                start = rng.randint(0, len(other))
                data[at:at] = other[start : start + size]
    return bytes(data)


@pytest.mark.long
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_a_promise(name: str, seeds: Seeds) -> None:
    if name in ("signed-forms", "group-file", "sealed"):
        pytest.importorskip("nacl")
    check, inputs, rng = check_of(name), inputs_of(name), Random(name)
    for data in (*inputs, *(mutant_of(inputs, rng) for _ in seeds(200, 1_000))):
        try:
            check(data[: TARGETS[name].bytes_max])
        except Exception as error:
            raise AssertionError(f"{name}: {data!r}") from error


@pytest.mark.long
def test_the_cores_inputs_reach_nearly_all_reasons_to_drop() -> None:
    servers = [server.run(data) for data in inputs_of("server")]
    reached = {drop for each in servers for drop in each.drops}
    # A crowd takes more leases than a script can ask for, and what is late a machine that was suspended.
    reachable = set(ServerDrop) - {ServerDrop.CROWD, ServerDrop.LATE}
    assert len(reached) >= 0.9 * len(reachable), reachable - reached
    assert sum(each.counts["copies_sent"] for each in servers) > 300
    clients = [client.run(data) for data in inputs_of("client")]
    without_proof = set(ClientDrop) - PROOF_DROPS - LAYER_DROPS
    assert len({drop for each in clients for drop in each.drops}) >= 0.8 * len(without_proof)
    assert sum(each.counts["deliveries"] for each in clients) > 300


@pytest.mark.long
def test_the_inputs_of_guards_reach_all_of_their_reasons_to_drop() -> None:
    pytest.importorskip("nacl")
    from kcast.client.messages.guard_and_writer import Proven
    from tests.fuzz import sealed

    found = [sealed.found_in(data) for data in inputs_of("sealed")]
    reached = {each for each in found if isinstance(each, ClientDrop)}
    wanted = PROOF_DROPS | {ClientDrop.MALFORMED_MESSAGE}
    assert reached | {ClientDrop.REPLAYED} >= wanted, (
        wanted - reached
    )  # a message that is taken is given again
    assert sum(isinstance(each, Proven) for each in found) > 10


def test_corpora_are_small() -> None:
    assert {path.name for path in CORPUS.iterdir()} <= set(TARGETS)
    assert sum(path.stat().st_size for name in TARGETS for path in corpus_of(name)) < CORPUS_BYTES_MAX


def test_the_smallest_inputs_that_reach_something_are_kept() -> None:
    def check(data: bytes) -> None:
        if data.startswith(b"a"):
            len(data)
        else:
            len(data)

    before = sys.gettrace()
    kept = smallest(check, [b"bbbb"], [b"abc", b"ab", b"", b"ccc"], Path(__file__).parent)
    assert kept == [b"ab"] and sys.gettrace() is before
