"""Which worker a request goes to, and which requests wait for one. Sans-IO. PROTOCOL §9.11.

A worker in the eyes of a caller, beside its presence:

| state | sign | next state |
|---|---|---|
| free | `busy` | full, for 50 ms |
| full | a request of ours ends there | full; the first that waits is asked |
| full | its time is over | full, for twice as long, 1 s at most; the first that waits is tried |
| full | any word but `busy` for one that was tried | full, for 50 ms; the next is tried |
| full | none waits for it then | free |
| free, full | two time-outs, and no word for other requests | silent |
| silent | a word in our mailbox, or `+` 1 s later | free |

No worker is sent more than 64 requests of which it has given no sign of life: what is said to many at once
would come too late, or not at all.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection
from random import Random

from kcast.client.layers.calls import Call, Target, Worker
from kcast.client.layers.members import Key


class Workers:
    """The workers of a topic, by what may be asked of them, and the requests that wait for each of that."""

    def __init__(self, rng: Random) -> None:
        self.known: dict[Key, Worker] = {}
        self._rng = rng
        self._workers: defaultdict[Target, dict[Key, Worker]] = defaultdict(dict)
        self._waiting: defaultdict[Target, OrderedDict[Call, None]] = defaultdict(OrderedDict)

    def of(self, target: Target) -> Collection[Worker]:
        """Returns those that may be asked for this."""
        return self._workers[target].values() if target in self._workers else ()

    def methods(self) -> list[str]:
        """Returns the methods that there are, 8 of them at most; `.` is the unnamed one."""
        return sorted(method or "." for name, method in self._workers if name is None)[:8]

    def place(self, worker: Worker, methods: Collection[str]) -> None:
        """Takes note of a worker's methods."""
        self.remove(worker)
        worker.methods = methods
        worker.targets = {(worker.key[1], ""), *((None, method) for method in methods)}
        for target in worker.targets:
            self._workers[target][worker.key] = worker

    def remove(self, worker: Worker) -> None:
        """Takes note that a worker is gone."""
        for target in worker.targets:
            del self._workers[target][worker.key]
            if not self._workers[target]:
                del self._workers[target]
        worker.targets = set()

    def choose(self, target: Target, last: Worker | None) -> Worker | None:
        """Returns the worker to ask, the last one only if there is no other; None where none is free."""
        free = [each for each in self.of(target) if not each.is_full and each.takes_one]
        free = [each for each in free if each is not last] or free
        least = min([each.calls for each in free], default=0)
        few = [each for each in free if each.calls == least]
        return few[self._rng.randrange(len(few))] if few else None

    def add(self, call: Call) -> None:
        """Lets a request wait: behind the others, the first time."""
        waiting = self._waiting[call.target]
        if call not in waiting:
            waiting[call] = None
            waiting.move_to_end(call, last=not call.has_waited)
            call.has_waited = True

    def discard(self, call: Call) -> None:
        """Takes note that a request waits no more."""
        if call.target in self._waiting:
            self._waiting[call.target].pop(call, None)
            if not self._waiting[call.target]:
                del self._waiting[call.target]

    def first(self, worker: Worker) -> Call | None:
        """Returns who waits for a worker, and is the oldest of those."""
        each_first = [next(iter(self._waiting[each])) for each in worker.targets if each in self._waiting]
        return min(each_first, key=lambda call: call.number, default=None)
