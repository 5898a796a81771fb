"""A network namespace behind a bad link: packets come late, out of order, or not at all.

Two TUN devices with a forwarder between them, since not every kernel has netem. Needs root.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import random
import struct
import subprocess
import threading
from collections.abc import Iterator

NAMESPACE = "voxgate-chaos"
SERVER, CLIENT = "10.231.7.1", "10.231.7.2"
_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000


def _do(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=True)


def _open_tun(name: str) -> int:
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return tun


def _open_tun_inside(name: str) -> int:
    """The same in the namespace: only this thread enters it."""
    found: list[int] = []

    def enter() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        namespace = os.open(f"/run/netns/{NAMESPACE}", os.O_RDONLY)
        if libc.setns(namespace, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)
        found.append(_open_tun(name))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return found[0]


class _Link:
    """Forwards between two devices, badly. Seconds; `loss` is a share."""

    def __init__(self, one: int, two: int, *, delay: float, jitter: float, loss: float) -> None:
        self._random = random.Random(5)
        self._delay, self._jitter, self._loss = delay, jitter, loss
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(one, self._forward, one, two)
        self._loop.add_reader(two, self._forward, two, one)
        self.lost = self.carried = 0

    def _forward(self, source: int, target: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while packet := os.read(source, 2048):
                if self._random.random() < self._loss:
                    self.lost += 1
                    continue
                self.carried += 1
                late = self._delay + self._random.uniform(0.0, self._jitter)
                self._loop.call_later(late, self._deliver, target, packet)

    def _deliver(self, target: int, packet: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(target, packet)


@contextlib.contextmanager
def lossy_network(
    *, delay: float = 0.14, jitter: float = 0.02, loss: float = 0.05
) -> Iterator[_Link]:
    """`SERVER` is this machine as seen from `NAMESPACE`; values are for each direction."""
    _do("ip", "netns", "del", NAMESPACE, check=False)
    _do("ip", "netns", "add", NAMESPACE)
    inside = ("ip", "netns", "exec", NAMESPACE)
    devices: list[int] = []
    try:
        devices += [_open_tun("vgchaos0"), _open_tun_inside("vgchaos1")]
        _do("ip", "addr", "add", SERVER, "peer", CLIENT, "dev", "vgchaos0")
        _do("ip", "link", "set", "vgchaos0", "up")
        _do(*inside, "ip", "addr", "add", CLIENT, "peer", SERVER, "dev", "vgchaos1")
        _do(*inside, "ip", "link", "set", "vgchaos1", "up")
        yield _Link(*devices, delay=delay, jitter=jitter, loss=loss)
    finally:
        for device in devices:
            asyncio.get_running_loop().remove_reader(device)
            os.close(device)
        _do("ip", "netns", "del", NAMESPACE, check=False)
