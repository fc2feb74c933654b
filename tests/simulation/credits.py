"""A naive account of credit (PROTOCOL §7.7): what was sent to an address, and what of it surely came.

A server may have forgotten an address that is still in this account. Then less is unproven than this says.
"""

from dataclasses import dataclass

from kcast.pubsub.endpoint import Address

CREDIT_BYTES = 64 * 1024  # whatever an address has shown to take, it has this credit


@dataclass(slots=True)
class _Account:
    sent_bytes: int = 0
    proven_bytes: int = 0
    noted_at: float | None = None  # when the cookie was made that proves what was sent until then ...
    noted_bytes: int = 0  # ... which is this


class Credits:
    """The accounts of one life of a server, of all addresses that ever held a lease there."""

    def __init__(self) -> None:
        self._accounts: dict[Address, _Account] = {}

    def renewed(self, address: Address, cookie_made_at: float) -> None:
        """A lease was opened or renewed with a cookie of this time."""
        account = self._accounts.setdefault(address, _Account())
        if account.noted_at is not None and cookie_made_at >= account.noted_at:
            account.proven_bytes, account.noted_at = account.noted_bytes, None

    def made_cookie(self, address: Address, now: float) -> None:
        """A cookie was made for an address; the first one since the last proof is noted."""
        account = self._accounts.get(address)
        if account is not None and account.noted_at is None:
            account.noted_at, account.noted_bytes = now, account.sent_bytes

    def sent(self, address: Address, size_bytes: int) -> None:
        """Copies of this many bytes went to an address."""
        if (account := self._accounts.get(address)) is not None:
            account.sent_bytes += size_bytes

    def unproven_bytes(self, address: Address) -> int:
        """What went to an address without a sign of life."""
        account = self._accounts.get(address)
        return 0 if account is None else account.sent_bytes - account.proven_bytes
