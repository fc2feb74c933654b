"""Stamps for worlds in which very many are looked for: each hash stands for several tries.

Clients count tries, spend their allowances and wait in virtual time as ever; only the hashes are fewer.
Stamps are still looked for and checked by the product's code, and serve for one cookie and its lines alone;
but each counts for some bits more than PROTOCOL §5.11 says, at servers and at the checker of work alike.
"""

import pytest

from kcast.pubsub import stamp
from kcast.pubsub.stamp import Mint
from tests.simulation import admission
from tests.simulation.ledger import Request

BITS = 4
TRIES_EACH = 1 << BITS


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each hash stand for several tries from now on."""
    work, worst_work, worth_bits = Mint.work, stamp._worst_work, admission.worth_bits

    def coarse_work(mint: Mint, tries: int) -> bytes | None:
        # What is left over of the tries counts, too: callers go on until all are used up.
        end = mint.tries + tries
        mint.tries //= TRIES_EACH
        found = work(mint, end // TRIES_EACH - mint.tries)
        mint.tries = end if found is None else mint.tries * TRIES_EACH
        return found

    def coarse_worst_work(bits: int) -> bytes:
        return worst_work(max(0, bits - BITS))

    def coarse_worth_bits(request: Request) -> int:
        worth = worth_bits(request)
        return worth + BITS if worth >= 0 else worth

    monkeypatch.setattr(Mint, "work", coarse_work)
    monkeypatch.setattr(stamp, "_worst_work", coarse_worst_work)
    monkeypatch.setattr(admission, "worth_bits", coarse_worth_bits)
