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


def test_files_kept_in_memory_are_free_and_a_container_has_its_limit(monkeypatch, tmp_path):
    """Linux gives back what it only keeps of files; a container's own files are told apart from it."""
    monkeypatch.setattr(memory, "ROOT", tmp_path)
    monkeypatch.setattr(memory.os, "sysconf_names", {"SC_AVPHYS_PAGES": 0}, raising=False)
    monkeypatch.setattr(
        memory.os, "sysconf", {"SC_AVPHYS_PAGES": 2, "SC_PAGE_SIZE": 512}.get, raising=False
    )
    assert memory.free_memory() == 1024.0  # on another system
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemFree:  1 kB\nMemAvailable:  9 kB\nBuffers: 2 kB\n")
    assert memory.free_memory() == 9 * 1024.0
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    for limit, expected in ("max\n", 9216.0), ("4000\n", 1700.0), ("2000\n", 0.0), ("99999\n", 9216.0):
        (group / "memory.max").write_text(limit)
        (group / "memory.current").write_text("3000\n")
        (group / "memory.stat").write_text("anon 2300\ninactive_anon 5\ninactive_file 700\n")
        assert memory.free_memory() == expected
