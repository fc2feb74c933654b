"""The addresses at which a server can be asked, of the families that the client has, and the one in use.

Sans-IO. PROTOCOL §8.1. A way may be silent without a word: a tunnel, a firewall, a name that leads to more
addresses than the server has. So a request for a cookie, which a server answers without keeping anything,
goes to the other addresses too, one after the other, until one answers (the idea of RFC 8305). That one is in
use then. Nothing else ever goes to an address that is not in use.
"""

from collections.abc import Collection, Iterable
from math import inf

from kcast.pubsub.endpoint import Address, Transmit

FAMILIES = (4, 6)
NEXT_AFTER_S = 0.25  # without an answer from one address, the next is asked (RFC 8305, section 5)


def family_of(address: Address) -> int:
    """Returns an address's IP version, 4 or 6."""
    return 6 if ":" in address[0] else 4


class Whereabouts:
    """A server's addresses of these families (IP versions). The first is in use until `move` or `answered`.

    Those that were `asked` for a cookie, and of which none has answered, are there only where several are to
    be. `next_at` is when the next of them is; infinite where none is.
    """

    def __init__(self, addresses: Iterable[Address], families: Collection[int]) -> None:
        self.next_at = inf
        self.asked: set[Address] = set()
        self._families = families
        self._index = 0
        self._ask = b""  # the datagram that goes to each in turn
        self._left: list[Address] = []  # to be asked yet
        self._refusing: set[Address] = set()  # to which nothing gets through, as network or system say
        self.addresses = self._usable(addresses)

    @property
    def address(self) -> Address | None:
        """The address in use; None where there is none."""
        return self.addresses[self._index] if self.addresses else None

    def move(self) -> bool:
        """Uses the next address; returns whether that is another one."""
        if len(self.addresses) < 2:
            return False
        self._index = (self._index + 1) % len(self.addresses)
        return True

    def take(self, addresses: Iterable[Address]) -> bool:
        """Takes these addresses in place of those before; returns whether the one in use is another now."""
        here, self.addresses = self.address, self._usable(addresses)
        self._index = self.addresses.index(here) if here in self.addresses else 0
        self.asked.intersection_update(self.addresses)
        self._left = [each for each in self._left if each in self.addresses]
        self.next_at = self.next_at if self._left else inf
        return self.address != here

    def _usable(self, addresses: Iterable[Address]) -> tuple[Address, ...]:
        return tuple([each for each in addresses if family_of(each) in self._families])

    # --- Asking at several ----------------------------------------------------------------------------

    def ask_all(self, ask: bytes, now: float) -> None:
        """Lets a request for a cookie go to the other addresses too; it leaves now for the one in use."""
        here = self.address
        self._ask, self._left = ask, [each for each in self.addresses if each != here]
        self.asked.add(self.addresses[self._index])
        self._refusing.clear()
        self.next_at = now + NEXT_AFTER_S if self._left else inf

    def ask_next(self, now: float) -> Transmit:
        """Returns what is to be sent to the next address, once its time has come."""
        address = self._left.pop(0)
        self.asked.add(address)
        self.next_at = now + NEXT_AFTER_S if self._left else inf
        return Transmit(self._ask, len(self._ask), (address,))

    def refused(self, address: Address, now: float) -> bool:
        """Takes it that nothing gets through to an address: if another is to be asked, then at once. Returns
        whether no answer is to be expected from any."""
        if address not in self.asked:
            return not self.asked and address == self.address
        self._refusing.add(address)
        if self._left:
            self.next_at = now
        return self._refusing.issuperset((*self.asked, *self._left))

    def answered(self, address: Address) -> bool:
        """Uses the address that was the first to answer; returns False for one that was not asked."""
        if address not in self.asked:
            return False
        self._index = self.addresses.index(address)
        self.ask_no_more()
        return True

    def ask_no_more(self) -> None:
        """Asks at no other address any more, and takes no answer from there."""
        self.next_at = inf
        self._left = []
        self.asked.clear()
