"""client/trust/forms/quorum.py: C2SP tlog-policy, its example, its limits, and what makes a quorum."""

from itertools import combinations
from random import Random

import pytest

pytest.importorskip("nacl")

from kcast.client.trust.forms.note import KIND_COSIGNATURE, SigningKey, VerifierKey
from kcast.client.trust.forms.quorum import NAMES_MAX, Policy, PolicyError, read_policy

LOG = SigningKey.from_seed("log", bytes(32)).verifier
LOG_AS_WITNESS = SigningKey.from_seed("log", bytes(32), KIND_COSIGNATURE).verifier
KEYS = [
    SigningKey.from_seed(f"key-{i}", (i + 1).to_bytes(32, "big"), KIND_COSIGNATURE).verifier
    for i in range(70)
]


def policy_of(*lines: str) -> Policy:
    """Reads a policy; `@3` stands for the vkey of the fourth witness."""
    words = (line.split(" ") for line in lines)
    return read_policy(
        " ".join(str(KEYS[int(word[1:])]) if word.startswith("@") else word for word in each)
        for each in ([f"log {LOG}"], *words)
    )


# The specification's example, with keys.
EXAMPLE = (
    *("", "witness X1 @0", "witness X2 @1", "witness X3 @2", "group X-witnesses 2 X1 X2 X3", ""),
    *("witness Y1 @3", "witness Y2 @4", "witness Y3 @5", "group Y-witnesses any Y1 Y2 Y3", ""),
    *("group X-and-Y all X-witnesses Y-witnesses", "quorum X-and-Y"),
)


def test_the_example_of_the_specification() -> None:
    policy = policy_of(*EXAMPLE)
    assert policy.needed == 3
    for count in range(7):
        for chosen in combinations(range(6), count):
            keys = {KEYS[i] for i in chosen}
            assert policy.is_met(keys) == (sum(i < 3 for i in chosen) >= 2 and any(i >= 3 for i in chosen))
    assert read_policy(policy.text.splitlines()) == policy


def test_a_strange_key_counts_nowhere() -> None:
    policy = policy_of("witness w @0", "group g any w", "quorum g")
    assert not policy.is_met([KEYS[1]])
    renamed = VerifierKey("other", KIND_COSIGNATURE, KEYS[0].public)
    assert not policy.is_met([renamed])


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (("quorum none", "quorum none"), "expected 'quorum' once"),
        (("witness none @0", "quorum none"), "a name that is not 'none'"),
        (("witness w @0", "group w any w", "quorum w"), "a name that is not 'w'"),
        (("witness w @0", "witness w @1", "quorum w"), "a name that is not 'w'"),
        (("witness w @0", "witness v @0", "quorum w"), "witnesses with different keys"),
        (("group g any none", "quorum g"), "a witness or group above, not 'none'"),
        (("group g any g", "quorum g"), "a witness or group above, not 'g'"),
        (("group g any w", "witness w @0", "quorum g"), "a witness or group above, not 'w'"),
        (("quorum w", "witness w @0"), "a witness or group above, not 'w'"),
        (("witness w @0", "group g any w w", "quorum g"), "'w' in one group only"),
        (("witness w @0", "group g any w", "group h any w", "quorum g"), "'w' in one group only"),
        (("witness w @0", "group g any", "quorum g"), "expected 'log VKEY [URL]'"),
        (("witness w @0", "group g 0 w", "quorum g"), "a number from 1 to 1, not '0'"),
        (("witness w @0", "group g 2 w", "quorum g"), "a number from 1 to 1, not '2'"),
        (("witness w @0", "group g 01 w", "quorum g"), "a number from 1 to 1, not '01'"),
        (("witness w @0", "group g \N{SUPERSCRIPT ONE} w", "quorum g"), "a number from 1 to 1"),
        (("witness w @0 https://a b", "quorum w"), "expected 'log VKEY [URL]'"),
        ((f"log {LOG}", "quorum none"), "expected one 'log'"),
        (("witness w @0",), "a line 'quorum NAME|none'"),
        ((f"witness w {LOG_AS_WITNESS}", "quorum w"), "witnesses with other keys than the log's"),
        (("Quorum none",), "expected 'log VKEY [URL]'"),
    ],
)
def test_what_is_no_policy(lines: tuple[str, ...], says: str) -> None:
    with pytest.raises(PolicyError) as caught:
        policy_of(*lines)
    assert says in str(caught.value)


def test_limits() -> None:
    """C2SP has everybody take 32 witnesses and 32 groups."""
    witnesses = [f"witness w{i} @{i}" for i in range(NAMES_MAX // 2)]
    groups = [f"group g{i} any w{i}" for i in range(NAMES_MAX // 2)]
    assert policy_of(*witnesses, *groups, "quorum g31").needed == 1
    with pytest.raises(PolicyError, match="at most 64 witnesses and groups"):
        policy_of(*witnesses, *groups, "witness more @40", "quorum none")
    names = " ".join(f"w{i}" for i in range(20))
    assert policy_of(*witnesses, f"group g 15 {names}", "quorum g").needed == 15
    with pytest.raises(PolicyError, match="a quorum of at most 15 witnesses"):
        policy_of(*witnesses, f"group g 16 {names}", "quorum g")


def test_the_smallest_quorum_is_the_smallest() -> None:
    """Of random policies, against all subsets: fewer than `needed` never suffice, and more never hurt."""
    rng = Random(13)
    for _ in range(60):
        free = [f"w{i}" for i in range(7)]
        lines = [f"witness w{i} @{i}" for i in range(7)]
        for number in range(rng.randrange(1, 5)):
            members = rng.sample(free, rng.randrange(1, len(free) + 1))
            free = [name for name in free if name not in members] + [f"g{number}"]
            lines.append(f"group g{number} {rng.randrange(1, len(members) + 1)} {' '.join(members)}")
        policy = policy_of(*lines, f"quorum {free[-1]}")
        sizes = set()
        for count in range(8):
            for chosen in combinations(KEYS[:7], count):
                fewest = policy.fewest(chosen)
                if fewest is not None:
                    sizes.add(count)
                    assert set(fewest) <= set(chosen) and policy.is_met(fewest)
                    assert not any(policy.is_met(less) for less in combinations(chosen, len(fewest) - 1))
        assert sizes == set(range(policy.needed, 8))
