"""Files with a few bytes changed: no judge takes another list for them, and none fails.

A sample runs here. For more: KCAST_MUTANTS=100000 pytest tests/client/trust/checks/test_judge_mutants.py
"""

import os
from random import Random

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.checks.verdicts import Accepted, Refused
from tests.support.forms import Seeds
from tests.support.lists import OWNERS, Lists, document, judged

MUTANTS = int(os.environ.get("KCAST_MUTANTS", "400"))


def mutant(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(changed))
        match rng.randrange(4):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.choice(b"0123456789ABCabc+/= \n\xe2\x80\x94")
            case 2:
                del changed[at]
            case 3:
                changed[at:at] = changed[at : at + rng.randrange(1, 90)]
        if not changed:
            break
    return bytes(changed)


def test_no_mutant_is_taken_for_the_list(seeds: Seeds) -> None:
    for seed in seeds(1, 4):
        lists = Lists()
        lists.publish()
        holders = [lists.newcomer(), lists.accepted()]
        lists.publish_document(document(version=2, floor=4), OWNERS[1:4])
        lists.publish(lists.cluster(13))
        lists.publish_document(document(version=3, floor=5), OWNERS[1:4])
        lists.serve_tree([])
        lists.publish(lists.cluster(14))
        asked: list[str] = []
        for held in holders:
            assert isinstance(judged(held, lists.files, asked=asked), Accepted)
        paths = sorted({path for path in asked if path in lists.files})
        rng = Random(seed)
        refused = 0
        for number in range(MUTANTS // 4):
            path, held = rng.choice(paths), rng.choice(holders)
            data = mutant(lists.files[path], rng)
            verdict = judged(held, {**lists.files, path: data})
            if isinstance(verdict, Accepted):
                right = verdict.held.list == lists.files["list/3"]
                assert right, f"seed {seed}, mutant {number} of {path}: {data!r}"
            else:
                assert isinstance(verdict, Refused)
                refused += 1
        assert refused > MUTANTS // 8
