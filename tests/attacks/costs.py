"""A program that measures what strangers' datagrams cost the server core of any version, in microseconds.

With a third argument, also what is made to be dear, IPv6 sources, and a table that is nearly full; that is
for this version alone.

It runs where that version is imported, so it takes nothing from this one but the junk.
"""

COSTS_PROGRAM = """
import importlib, importlib.util, json, sys, time
prefix, here, *more = sys.argv[1:]
spec = importlib.util.spec_from_file_location("junk", here + "/tests/attacks/junk.py")
junk = importlib.util.module_from_spec(spec)
spec.loader.exec_module(junk)
Server = importlib.import_module(prefix + "pubsub.server").Server
Burst = importlib.import_module(prefix + "pubsub.endpoint").Burst
costs = {}
cases = [(kind, "10.%d.%d.%d", False) for kind in [*junk.KINDS, *(junk.DEAR_KINDS if more else ())]]
if more:
    for kind in [*junk.KINDS, *junk.DEAR_KINDS]:
        cases += [(kind, "2001:db8:%x:%x::%x", is_full) for is_full in (False, True)]
full = Server(secret=bytes(32))
for number in range(90_000 if more else 0):
    address = "11.%d.%d.%d" % (number >> 16, number >> 8 & 255, number & 255), 5
    full.leases.open(b"t%d" % (number % 20_000), address, 999.0)
for kind, host, is_full in cases:
    server = full if is_full else Server(secret=bytes(32))
    # Of more sources than caches have room for.
    datagrams = junk.datagrams_of(kind) * (24 if more else 1)
    bursts = [
        Burst(data, len(data), (host % (number >> 8, number & 255, 1 + number % 200), 1000 + number))
        for number, data in enumerate(datagrams)
    ]
    best = float("inf")
    for turn in range(4 if more else 12):
        now = 1000.0 + turn
        began = time.process_time()
        for _ in range(1 if more else 4):
            for burst in bursts:
                server.receive(burst, now)
                server.flush(now)
        best = min(best, (time.process_time() - began) / ((1 if more else 4) * len(bursts)))
    name = kind + (", IPv6" if ":" in host else "") + (", nearly full" if is_full else "")
    costs[name] = best * 1e6
print(json.dumps(costs))
"""
