"""The addresses at which a server can be asked, of the families that the client has, and the one in use.

Sans-IO. PROTOCOL §8.1.
"""

from collections.abc import Collection, Iterable

from kcast.pubsub.endpoint import Address

FAMILIES = (4, 6)


def family_of(address: Address) -> int:
    """Returns an address's IP version, 4 or 6."""
    return 6 if ":" in address[0] else 4


class Whereabouts:
    """A server's addresses of these families (IP versions). The first is in use until `move` is called."""

    def __init__(self, addresses: Iterable[Address], families: Collection[int]) -> None:
        self._families = families
        self._index = 0
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
        return self.address != here

    def _usable(self, addresses: Iterable[Address]) -> tuple[Address, ...]:
        return tuple([each for each in addresses if family_of(each) in self._families])
