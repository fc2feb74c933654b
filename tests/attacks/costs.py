"""A program that measures what strangers' datagrams cost the server core of any version, in microseconds.

It runs where that version is imported, so it takes nothing from this one but the junk.
"""

COSTS_PROGRAM = """
import importlib, importlib.util, json, sys, time
prefix, here = sys.argv[1:]
spec = importlib.util.spec_from_file_location("junk", here + "/tests/attacks/junk.py")
junk = importlib.util.module_from_spec(spec)
spec.loader.exec_module(junk)
Server = importlib.import_module(prefix + "pubsub.server").Server
Burst = importlib.import_module(prefix + "pubsub.endpoint").Burst
costs = {}
for kind in junk.KINDS:
    server = Server(secret=bytes(32))
    datagrams = junk.datagrams_of(kind)
    bursts = [
        Burst(data, len(data), ("10.%d.%d.1" % (number >> 8, number & 255), 1000 + number))
        for number, data in enumerate(datagrams)
    ]
    best = float("inf")
    for turn in range(12):
        now = 1000.0 + turn
        began = time.process_time()
        for _ in range(4):
            for burst in bursts:
                server.receive(burst, now)
                server.flush(now)
        best = min(best, (time.process_time() - began) / (4 * len(bursts)))
    costs[kind] = best * 1e6
print(json.dumps(costs))
"""
