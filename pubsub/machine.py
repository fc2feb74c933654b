"""The addresses of this machine, as far as Linux tells them in /proc/net."""

import re
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from kcast.pubsub.endpoint import Address

PROC_NET = Path("/proc/net")

_LOCAL_V4 = re.compile(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL\n")


def is_one_of_several(address: Address, proc_net: Path = PROC_NET) -> bool:
    """Whether a wildcard address stands for several addresses of one family; loopback does not count.

    True also where the system does not tell its addresses.
    """
    families = [_v4(proc_net)]
    if ":" in address[0]:
        families.append(_v6(proc_net))
    return any(own is None or len(own) > 1 for own in families)


def _v4(proc_net: Path) -> set[str] | None:
    try:
        found = _LOCAL_V4.findall((proc_net / "fib_trie").read_text())
    except OSError:
        return None
    return {each for each in found if not ip_address(each).is_loopback}


def _v6(proc_net: Path) -> set[str] | None:
    found: set[str] = set()
    with suppress(FileNotFoundError):  # without IPv6
        try:
            text = (proc_net / "if_inet6").read_text()
        except PermissionError:
            return None
        for line in text.splitlines():
            ip = IPv6Address(int(line.split()[0], 16))
            if not ip.is_loopback and not ip.is_link_local:  # kcast answers no link-local address
                found.add(str(ip))
    return found
