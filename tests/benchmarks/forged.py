"""How many lines a second that somebody has made up fill a core of a subscriber, which rejects each of them.

    python -m tests.benchmarks.forged

`tests/client/sealed/test_attacks_floods.py` lets half as many come, and sees what becomes of honest messages.
"""

from tests.support import forged


def main() -> None:
    """Prints the rates, one kind a line."""
    for name in forged.ALL:
        rate = forged.rejected_per_s(name, lines=2000, rounds=5)
        print(f"{name:34} {rate:9,.0f} a second, {1e6 / rate:5.1f} us each", flush=True)


if __name__ == "__main__":
    main()
