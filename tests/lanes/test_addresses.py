"""Who is counted as one where limits are for an address, and whom the server believes about it."""

from __future__ import annotations

import pytest

from tertulia.config import ConfigError, load_settings
from tertulia.gateway.addresses import network_of


@pytest.mark.parametrize(
    ("host", "counted_as"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:0db8:0001:0002::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("/run/tertulia.sock", "/run/tertulia.sock"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_an_address_is_counted_with_all_that_its_holder_can_take(
    host: str, counted_as: str
) -> None:
    assert network_of(host) == counted_as


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("*", "must be addresses or networks"),
        ("proxy.example.org", "must be addresses or networks"),
        ("10.0.0.1/8", "must be addresses or networks"),
        ("0.0.0.0/0", "everybody"),
        ("::/0", "everybody"),
    ],
)
def test_a_proxy_that_anybody_could_be_is_not_trusted(proxy: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_settings(None, server={"trusted_proxies": [proxy]})
