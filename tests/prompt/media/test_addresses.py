"""Which IP addresses are public, whatever Python's own release takes for such. Nothing is sent to any of them."""

from __future__ import annotations

import ipaddress
import random

import pytest

from localai_shim.prompt.media.remote import is_public

BLOCKS = [
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"),
    *("192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
    *("224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32"),
    *("::/128", "::1/128", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64", "2001:2::/48", "2001:10::/28"),
    *("2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "::/96"),
]
"""Of IANA's registries of special-purpose and of multicast addresses, what is not globally reachable."""
METADATA = [
    *("169.254.169.254", "169.254.170.2", "192.0.0.192", "168.63.129.16", "100.100.100.200", "fd00:ec2::254"),
    "fd20:ce::254",
]
"""Services that give a cloud's machines their credentials."""
PUBLIC = ["93.184.216.34", "1.1.1.1", "8.8.8.8", "168.63.129.15", "192.0.1.1", "192.88.98.255", "192.88.100.0"]
PUBLIC6 = ["2606:4700:4700::1111", "2001:4860:4860::8888", "2a00:1450::1", "2001:200::1", "3fff:1000::1"]
LAST = 0xFFFF_FFFF


def forms(address: str) -> dict[str, str]:
    """IPv6 addresses that lead to an IPv4 address."""
    number, server = int(ipaddress.IPv4Address(address)), int(ipaddress.IPv4Address("8.8.8.8"))
    made = {
        "mapped": 0xFFFF << 32 | number,
        "NAT64": 0x64FF9B << 96 | number,
        "6to4": 0x2002 << 112 | number << 80 | 1,
        "Teredo client": 0x20010000 << 96 | server << 64 | number ^ LAST,
        "Teredo server": 0x20010000 << 96 | number << 64 | server ^ LAST,
        "ISATAP": 0x2606_4700 << 96 | 0x5EFE << 32 | number,
        "unique ISATAP": 0x2606_4700 << 96 | 0x0200_5EFE << 32 | number,
    }
    return {name: str(ipaddress.IPv6Address(value)) for name, value in made.items()}


@pytest.mark.parametrize("block", BLOCKS)
def test_no_address_of_a_special_block_is_public(block: str) -> None:
    network = ipaddress.ip_network(block)
    rng = random.Random(block)
    numbers = [0, network.num_addresses - 1, *(rng.randrange(network.num_addresses) for _ in range(20))]
    for number in numbers:
        address = str(network[number])
        assert not is_public(address), address
        for form, outer in forms(address).items() if network.version == 4 else ():
            assert not is_public(outer), form


@pytest.mark.parametrize("address", METADATA)
def test_a_cloud_s_metadata_service_is_not_public(address: str) -> None:
    assert not is_public(address)
    assert not any(map(is_public, forms(address).values() if "." in address else ()))


@pytest.mark.parametrize("address", PUBLIC)
def test_addresses_of_the_internet_are_public_in_each_form(address: str) -> None:
    assert is_public(address)
    assert {form: is_public(outer) for form, outer in forms(address).items()} == dict.fromkeys(forms(address), True)


@pytest.mark.parametrize("address", PUBLIC6)
def test_addresses_of_the_internet_s_hosts_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    ["", "localhost", "1.1.1", "01.1.1.1", "1.1.1.1 ", "2606:4700:4700::1111%eth0", "::ffff:0:8.8.8.8", "::8.8.8.8"],
)
def test_what_is_no_address_or_of_no_known_form_is_not_public(address: str) -> None:
    """Translated and compatible addresses are forms that nothing uses any more."""
    assert not is_public(address)


def test_what_python_takes_for_private_is_never_public() -> None:
    """Its releases may learn of blocks before this list does."""
    rng = random.Random(7)
    for _ in range(20_000):
        for address in (ipaddress.IPv4Address(rng.getrandbits(32)), ipaddress.IPv6Address(rng.getrandbits(128))):
            assert address.is_global or not is_public(str(address)), address
