"""Telemetry: readings of many sensors, a topic each, of which a lost one does no harm.

    python telemetry.py send --cluster lab.txt --sensors 100
    python telemetry.py watch --cluster lab.txt --sensors 100

The sender asks for no receipts, since the next reading follows soon. Only one reading in ten of each sensor
asks for them, so that the client notices within seconds which servers are dead, and sends to others. Ctrl-C
and SIGTERM end both; what was published leaves first.
"""

import argparse
import asyncio
import random
import signal
import sys
import time
from collections.abc import Callable

from kcast.client.aio import AllServersLost, Client, Delivery, Gap, KcastError, ServerLost, ServerReturned

FIGURES_INTERVAL_S = 10.0
CONFIRM_EVERY = 10


def topic(sensor: int) -> str:
    """Returns a sensor's topic."""
    return f"sensor/{sensor}/celsius"


async def send(cluster: str | None, sensors: int, interval_s: float) -> None:
    """Publishes a reading of each sensor in each interval, evenly in time, until it is told to stop."""
    async with Client(cluster) as client:
        stop = asyncio.Event()
        stop_at_signals(stop.set)
        tasks = [asyncio.create_task(tell_of_servers(client)), asyncio.create_task(tell_figures(client))]
        due_at, number = time.monotonic(), 0
        while not stop.is_set():
            turn, sensor = divmod(number, sensors)
            confirm = (turn + sensor) % CONFIRM_EVERY == 0
            client.publish_nowait(topic(sensor), f"{random.gauss(20.0, 1.0):.2f}", confirm=confirm)
            number += 1
            due_at = max(due_at + interval_s / sensors, time.monotonic() - interval_s)  # never far behind
            await asyncio.sleep(max(due_at - time.monotonic(), 0.0))
        for task in tasks:
            task.cancel()
        print(f"sent {number} readings", flush=True)


async def tell_of_servers(client: Client) -> None:
    """Says on standard error which servers are lost, and which are back."""
    async for event in client.events():
        match event:
            case AllServersLost():
                print("no server answers: readings are lost until one does", file=sys.stderr, flush=True)
            case ServerLost(server):
                print(f"{server} is lost", file=sys.stderr, flush=True)
            case ServerReturned(server):
                print(f"{server} is back", file=sys.stderr, flush=True)


async def tell_figures(client: Client) -> None:
    """Prints now and then what became of the readings, by outcome at each server."""
    while True:
        await asyncio.sleep(FIGURES_INTERVAL_S)
        figures = client.counters()
        outcomes = {outcome: count for outcome, count in figures["outcomes"].items() if count}
        print(f"published {figures['published']}: {outcomes}; servers {figures['servers']}", flush=True)


async def watch(cluster: str | None, sensors: int, hold_s: float) -> None:
    """Prints each reading with its number, in the order of its sensor, and how many were lost."""
    async with Client(cluster) as client:
        readings = client.subscribe([topic(sensor) for sensor in range(sensors)], hold_s=hold_s)
        both = client.stream(readings, client.events())
        stop_at_signals(both.close)
        leased, wanted = await readings.ready(timeout_s=3)
        print(f"{leased} of {wanted} leases", file=sys.stderr, flush=True)
        async for item in both:
            match item:
                case Delivery(topic=name, payload=celsius):
                    at = time.strftime("%H:%M:%S", time.localtime(item.received_at_s))
                    print(f"{at} {name.decode()} {item.seq} {celsius.decode(errors='replace')!r}", flush=True)
                case AllServersLost():
                    print("no server answers: nothing comes until one does", file=sys.stderr, flush=True)
                case Gap(name, _, first_seq, last_seq):
                    print(f"{name.decode()}: {last_seq - first_seq + 1} lost", file=sys.stderr, flush=True)


def stop_at_signals(stop: Callable[[], None]) -> None:
    """Calls a function at Ctrl-C and SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)


def main() -> None:
    """Reads the command line, and does what it says."""
    parser = argparse.ArgumentParser(description="Send readings of sensors, or watch them.")
    parser.add_argument("what", choices=("send", "watch"))
    parser.add_argument("--cluster", help="a cluster file, or a context; by default what KCAST_CLUSTER names")
    parser.add_argument("--sensors", type=int, default=10)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between a sensor's readings")
    parser.add_argument("--hold", type=float, default=0.05, help="seconds to wait for earlier readings")
    given = parser.parse_args()
    if given.sensors < 1 or given.interval <= 0:
        parser.error("--sensors and --interval: give more than 0")
    try:
        if given.what == "send":
            asyncio.run(send(given.cluster, given.sensors, given.interval))
        else:
            asyncio.run(watch(given.cluster, given.sensors, given.hold))
    except (KcastError, OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
