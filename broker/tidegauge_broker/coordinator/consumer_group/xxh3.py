"""The hash XXH3 with 64 bits and seed 0, by which a group notices that the metadata of its topics has changed.

Source: the XXH3 specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md); Kafka uses it through hash4j.
"""

from __future__ import annotations

import struct
from itertools import accumulate

_MASK = 0xFFFFFFFFFFFFFFFF
_LOW = 0xFFFFFFFF
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_LANES = struct.Struct("<8Q")
_STRIPE = 64
_CONSUMED = 8
"""Bytes by which each stripe advances in the secret."""
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE) // _CONSUMED
_LONG_FROM = 241


def xxh3_64(data: bytes) -> int:
    """Return the hash of some bytes, as an unsigned number."""
    if not data:
        return _avalanche64(_word(_SECRET, 56) ^ _word(_SECRET, 64))
    if len(data) <= 16:
        return _up_to_16(data)
    if len(data) < _LONG_FROM:
        return _up_to_240(data)
    return _long(data)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _half(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _folded(left: int, right: int) -> int:
    product = left * right
    return product & _MASK ^ product >> 64


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * 0x165667919E3779F9 & _MASK
    return value ^ value >> 32


def _avalanche64(value: int) -> int:
    value ^= value >> 33
    value = value * _PRIME64[1] & _MASK
    value ^= value >> 29
    value = value * _PRIME64[2] & _MASK
    return value ^ value >> 32


def _up_to_16(data: bytes) -> int:
    size = len(data)
    if size > 8:
        low = _word(data, 0) ^ _word(_SECRET, 24) ^ _word(_SECRET, 32)
        high = _word(data, size - 8) ^ _word(_SECRET, 40) ^ _word(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((size + swapped + high + _folded(low, high)) & _MASK)
    if size >= 4:
        mixed = _half(data, size - 4) + (_half(data, 0) << 32) ^ _word(_SECRET, 8) ^ _word(_SECRET, 16)
        mixed ^= (mixed << 49 | mixed >> 15) & _MASK ^ (mixed << 24 | mixed >> 40) & _MASK
        mixed = mixed * 0x9FB21C651E98DF25 & _MASK
        mixed ^= (mixed >> 35) + size
        mixed = mixed * 0x9FB21C651E98DF25 & _MASK
        return mixed ^ mixed >> 28
    combined = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
    return _avalanche64(combined ^ _half(_SECRET, 0) ^ _half(_SECRET, 4))


def _mixed(data: bytes, at: int, secret_at: int) -> int:
    return _folded(_word(data, at) ^ _word(_SECRET, secret_at), _word(data, at + 8) ^ _word(_SECRET, secret_at + 8))


def _up_to_240(data: bytes) -> int:
    size = len(data)
    value = size * _PRIME64[0]
    if size <= 128:
        for pair in range((size - 1) // 32 + 1):
            value += _mixed(data, 16 * pair, 32 * pair) + _mixed(data, size - 16 * (pair + 1), 32 * pair + 16)
        return _avalanche(value & _MASK)
    for index in range(8):
        value += _mixed(data, 16 * index, 16 * index)
    value = _avalanche(value & _MASK)
    for index in range(8, size // 16):
        value += _mixed(data, 16 * index, 16 * (index - 8) + 3)
    value += _mixed(data, size - 16, 136 - 17)
    return _avalanche(value & _MASK)


def _long(data: bytes) -> int:
    sums = [
        _PRIME32[2],
        _PRIME64[0],
        _PRIME64[1],
        _PRIME64[2],
        _PRIME64[3],
        _PRIME32[1],
        _PRIME64[4],
        _PRIME32[0],
    ]
    size = len(data)
    stripes = (size - 1) // _STRIPE
    for stripe in range(stripes):
        within = stripe % _STRIPES_PER_BLOCK
        _accumulate(sums, data, stripe * _STRIPE, within * _CONSUMED)
        if within == _STRIPES_PER_BLOCK - 1:
            _scramble(sums)
    _accumulate(sums, data, size - _STRIPE, len(_SECRET) - _STRIPE - 7)
    merged = size * _PRIME64[0] & _MASK
    parts = (
        _folded(sums[2 * pair] ^ _word(_SECRET, 11 + 16 * pair), sums[2 * pair + 1] ^ _word(_SECRET, 19 + 16 * pair))
        for pair in range(4)
    )
    *_, total = accumulate(parts, initial=merged)
    return _avalanche(total & _MASK)


def _accumulate(sums: list[int], data: bytes, at: int, secret_at: int) -> None:
    lanes, keys = _LANES.unpack_from(data, at), _LANES.unpack_from(_SECRET, secret_at)
    for index, (lane, key) in enumerate(zip(lanes, keys, strict=True)):
        mixed = lane ^ key
        sums[index ^ 1] = sums[index ^ 1] + lane & _MASK
        sums[index] = sums[index] + (mixed & _LOW) * (mixed >> 32) & _MASK


def _scramble(sums: list[int]) -> None:
    keys = _LANES.unpack_from(_SECRET, len(_SECRET) - _STRIPE)
    for index, key in enumerate(keys):
        value = sums[index]
        sums[index] = (value ^ value >> 47 ^ key) * _PRIME32[0] & _MASK
