"""Observes for how long the way back to this machine stays open without traffic, past NAT and firewall.

For each pause a fresh port takes a lease on a topic of its own, and then keeps silent. After the pause
another port publishes on that topic. If the copy arrives, the way was still open. All pauses pass at the
same time.
"""

import asyncio
import secrets
from contextlib import ExitStack
from random import SystemRandom

from kcast.client.cli.doctor.line import Line, converse
from kcast.client.cli.doctor.seen import Idle
from kcast.client.cli.trial import Trial
from kcast.pubsub import clock, wire
from kcast.pubsub.endpoint import Address
from kcast.pubsub.limits import RENEWAL_INTERVAL_S_MAX, RENEWALS_PER_TTL

PAUSES_S = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 55.0)
COPY_WAIT_S = 1.0
TRIES = 2  # one message may get lost
ENOUGH_DEAD = 2  # pauses in a row after which none came: longer ones will bring nothing


async def observe_idle(address: Address, ttl_s: float, pauses_s: tuple[float, ...], timeout_s: float) -> Idle:
    """Returns what came of each pause that a lease outlives. Takes as long as the longest, and a little."""
    idle = Idle(renewal_interval_s=min(ttl_s / RENEWALS_PER_TTL, RENEWAL_INTERVAL_S_MAX))
    lasting_s = [pause_s for pause_s in pauses_s if pause_s + TRIES * COPY_WAIT_S < ttl_s]
    with ExitStack() as stack:
        silent = [_Silent(stack.enter_context(Line(address))) for _ in lasting_s]
        await asyncio.gather(*(each.lease(timeout_s) for each in silent))
        began = clock.now()
        for pause_s, each in zip(lasting_s, silent, strict=True):
            await asyncio.sleep(began + pause_s - clock.now())
            came = await each.hears_of(address, timeout_s)
            idle.outcomes.append((pause_s, came))
            if [came for _, came in idle.outcomes[-ENOUGH_DEAD:]] == [False] * ENOUGH_DEAD:
                break
    return idle


class _Silent:
    """A port that has taken a lease, and sends nothing since."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._topic = b"%b-%b" % (wire.HEALTH_TOPIC, secrets.token_hex(8).encode())
        self._is_leased = False

    async def lease(self, timeout_s: float) -> None:
        trial = Trial(self._line.address, SystemRandom(), self._topic)
        now = clock.now()
        trial.begin(now)
        await converse(self._line, trial, now + timeout_s, lambda: trial.is_leased)
        self._is_leased = trial.is_leased

    async def hears_of(self, address: Address, timeout_s: float) -> bool | None:
        """Publishes on its topic from another port. Returns whether the copy comes here; None where it cannot
        be said, for want of a lease or of a receipt."""
        if not self._is_leased:
            return None
        has_receipt = False
        for _ in range(TRIES):
            has_receipt |= await self._publish(address, timeout_s)
            if await self._hears(clock.now() + COPY_WAIT_S):
                return True
        return False if has_receipt else None

    async def _publish(self, address: Address, timeout_s: float) -> bool:
        trial = Trial(address, SystemRandom(), self._topic)
        trial.begin(clock.now(), leases=False)
        with Line(address) as other:
            await converse(other, trial, clock.now() + timeout_s, lambda: trial.has_receipt)
        return trial.has_receipt

    async def _hears(self, until: float) -> bool:
        """Whether a copy on its topic comes in time."""
        while clock.now() < until:
            for datagram, source in await self._line.heard(until):
                lines = wire.split_lines(datagram)[0]
                if source == self._line.address and any(
                    text.startswith(self._topic + b" ") for text in lines
                ):
                    return True
        return False
