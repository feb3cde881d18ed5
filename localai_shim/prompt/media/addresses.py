"""IP addresses of the public internet.

Python's `ipaddress` follows IANA's registries of special-purpose blocks, but which state of them depends on its patch
release: 3.11.7 takes 192.0.0.192, a cloud's metadata service, for public. So the blocks are listed here, too.
"""

from __future__ import annotations

import ipaddress

_IPV4 = [
    ipaddress.IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carriers' NAT; a metadata service (Alibaba's)
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's metadata service, in no registry
        "169.254.0.0/16",  # link-local; metadata services
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; a metadata service (Oracle's)
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
]
_UNICAST = ipaddress.IPv6Network("2000::/3")  # all that is assigned to hosts of the internet
_IPV6 = [
    ipaddress.IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments: benchmarks, ORCHID and others
        "2001:db8::/32",  # documentation
        "3fff::/20",
    )
]
_MAPPED, _NAT64, _SIX_TO_FOUR, _TEREDO = map(
    ipaddress.IPv6Network, ("::ffff:0:0/96", "64:ff9b::/96", "2002::/16", "2001::/32")
)
_ISATAP = 0x5EFE  # before the IPv4 address at the end of one, but for a bit that says that it is unique
_UNIQUE = 0x0200_0000
_LAST = 0xFFFF_FFFF


def is_public(address: str) -> bool:
    """True if an IP address belongs to a host of the internet: it is not private, local, shared, reserved or
    multicast, does not lead to such an IPv4 address, and is not a cloud's metadata service.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return ip.is_global and not any(ip in block for block in _IPV4)
    if ip.scope_id is not None:
        return False
    within = _within(ip)
    if within is not None:
        return all(is_public(str(ipaddress.IPv4Address(each & _LAST))) for each in within)
    if int(ip) >> 32 & _LAST & ~_UNIQUE == _ISATAP and not is_public(str(ipaddress.IPv4Address(int(ip) & _LAST))):
        return False
    return ip in _UNICAST and ip.is_global and not any(ip in block for block in _IPV6)


def _within(ip: ipaddress.IPv6Address) -> list[int] | None:
    """The IPv4 addresses that an IPv6 address stands for, each in the last 32 bits of a number; None: it is a host's
    own.
    """
    number = int(ip)
    if ip in _MAPPED or ip in _NAT64:
        return [number]
    if ip in _SIX_TO_FOUR:
        return [number >> 80]
    if ip in _TEREDO:
        return [number >> 64, ~number]  # its server's, and its own with all bits turned
    return None
