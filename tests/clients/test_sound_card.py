"""Speech on a sound card through PortAudio and ALSA, whose card here is a file."""

from __future__ import annotations

import asyncio
import ctypes.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from gateway_conftest import Run

DRIVER = Path(__file__).with_name("sound_card_driver.py")
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    ctypes.util.find_library("portaudio") is None, reason="apt-get install libportaudio2"
)


def card(folder: Path) -> tuple[Path, dict[str, str]]:
    """Where what is played is written, bit by bit, and the environment that makes it so."""
    heard, configuration = folder / "heard.raw", folder / "asound.conf"
    device = f'{{ type file slave.pcm {{ type null }} file "{heard}" format "raw" }}'
    configuration.write_text(f"pcm.sink {{ type null }}\npcm.default {device}\n")
    return heard, {**os.environ, "ALSA_CONFIG_PATH": str(configuration)}


@pytest.mark.parametrize("how", ["file", "stream", "speakers"])
async def test_every_sample_reaches_the_card(run: Run, tmp_path: Path, how: str) -> None:
    heard, environment = card(tmp_path)
    given = tmp_path / "given.raw"
    async with run() as running:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(DRIVER), running.url, how, str(given),
            env=environment, cwd=ROOT, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
    if how == "speakers":
        played = np.fromfile(heard, "<i2")
    else:
        played = np.rint(np.fromfile(heard, "<f4") * 32_767).astype("<i2")
    # This card plays as fast as it can and hears silence while nothing is there.
    sounding = played[played != 0]
    assert sounding.size > 8_000
    if how != "stream":
        samples = np.fromfile(given, "<i2")
        assert np.array_equal(sounding, samples[samples != 0])
