"""Where densities run, and what memory is free there."""

import pytensor
import pytest

from pymc_scalable_gp.utils import memory
from pymc_scalable_gp.utils.compiled import in_jax


class Device:
    """As JAX shows a device."""

    def __init__(self, platform, stats=None):
        self.platform, self.memory_stats = platform, lambda: stats


def test_only_the_mode_jax_with_a_device_is_an_accelerator(monkeypatch):
    jax = pytest.importorskip("jax")
    gpu = Device("gpu")
    monkeypatch.setattr(jax, "devices", lambda: [gpu])
    assert memory.accelerator() is None
    assert not in_jax()
    with pytensor.config.change_flags(mode="JAX"):
        assert memory.accelerator() is gpu
        assert in_jax()
        gpu.platform = "cpu"
        assert memory.accelerator() is None


def test_what_is_free_on_a_device():
    assert memory.free_on(Device("gpu", {"bytes_limit": 100, "bytes_in_use": 30})) == 70.0
    assert memory.free_on(Device("gpu")) == memory.ASSUMED


def test_memory_of_this_machine_is_between_nothing_and_all(monkeypatch):
    assert 0.0 < memory.free_memory() < 2.0**60
    monkeypatch.setattr(memory.os, "sysconf_names", {}, raising=False)
    assert memory.free_memory() == memory.ASSUMED
