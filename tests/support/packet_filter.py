"""Runs a classic BPF program on a datagram, as the kernel would (Documentation/networking/filter.rst)."""

import socket
import struct

from kcast.pubsub.endpoint import Address

MASK = 0xFFFFFFFF


def run(program: bytes, source: Address, data: bytes, chance: int) -> bool:
    """Whether the program passes a datagram, as the kernel would find. `chance` is SKF_AD_RANDOM."""
    address, port = source
    is_v6 = ":" in address
    packed = socket.inet_pton(socket.AF_INET6 if is_v6 else socket.AF_INET, address)
    ip = (
        (b"\x60".ljust(8, b"\0") + packed + bytes(16))
        if is_v6
        else (b"\x45".ljust(12, b"\0") + packed + bytes(4))
    )
    udp = struct.pack(">HHHH", port, 7400, 8 + len(data), 0) + data

    def load(offset: int, size: int) -> int | None:
        if offset == 0xFFFFF000 + 56:
            return chance
        where, start = (ip, offset - 0xFFF00000) if offset >= 0xFFF00000 else (udp, offset)
        return int.from_bytes(where[start : start + size], "big") if start + size <= len(where) else None

    a = x = at = 0
    memory = [0] * 16
    for _ in range(200):
        operation, if_true, if_false, k = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        match operation:
            case 0x20 | 0x28 | 0x30:
                value = load(k, {0x20: 4, 0x28: 2, 0x30: 1}[operation])
                if value is None:
                    return False
                a = value
            case 0x00:
                a = k
            case 0x80:
                a = len(udp)
            case 0x60:
                a = memory[k]
            case 0x61:
                x = memory[k]
            case 0x02:
                memory[k] = a
            case 0x03:
                memory[k] = x
            case 0x07:
                x = a
            case 0x24:
                a = a * k & MASK
            case 0xAC:
                a ^= x
            case 0x74:
                a >>= k
            case 0x7C:
                a >>= x
            case 0x54:
                a &= k
            case 0x05:
                at += k
            case 0x15:
                at += if_true if a == k else if_false
            case 0x35:
                at += if_true if a >= k else if_false
            case 0x3D:
                at += if_true if a >= x else if_false
            case 0x06:
                return bool(k)
            case _:
                raise AssertionError(f"operation {operation:#x}")
    raise AssertionError("no end after 200 instructions")
