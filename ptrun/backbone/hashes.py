"""The hash of dropout: its constants, and how torch scrambles 32 bits."""

from torch import Tensor

GOLDEN, MIX1, MIX2 = -1640531527, -2048144789, -1028477387  # odd 32-bit constants (murmur3)
PRIMES = (73856093, 19349663, 83492791)


def mix(x: Tensor) -> Tensor:
    """Return int32 values, scrambled in place (the murmur3 finaliser on arithmetic shifts)."""
    x ^= x >> 16
    x *= MIX1
    x ^= x >> 13
    x *= MIX2
    return x
