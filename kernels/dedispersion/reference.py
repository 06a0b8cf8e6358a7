"""Dedispersion in NumPy: what is right, and a telescope's band to try it on."""

from typing import Any

import numpy as np

LANGUAGE = "C"
OUTPUTS = ("out",)
SIZE = (256, 64, 4096)  # channels, trial DMs, samples: 5 MB of input, more than a second-level cache holds
# float32 rounding of a sum of 256 numbers in [-1, 1], in another order, stays below 3e-5; a wrong term shows as 1e-2 or more.
RTOL, ATOL = 1e-5, 5e-5


def inputs(size: tuple[int, int, int] | None = None, seed: int = 0) -> dict[str, Any]:
    """Arguments in the kernel's order; `size` is (channels, dms, samples). The output holds NaN until the kernel writes it.

    The delay of a channel of frequency f is dm * (1 / f^2 - 1 / f_highest^2), as cold plasma delays a pulse; the band is 1.2 to
    1.5 GHz, and the largest delay is a quarter of the samples.
    """
    channels, dms, samples = size or SIZE
    rng = np.random.default_rng(seed)
    frequencies = np.linspace(1.2, 1.5, channels)
    dispersion = 1 / frequencies**2 - 1 / 1.5**2
    trials = np.arange(dms)[:, None] / max(1, dms - 1)
    delays = np.rint(trials * dispersion / (1 / 1.2**2 - 1 / 1.5**2) * (samples // 4)).astype(np.int32)
    in_samples = samples + int(delays.max())
    return {
        "out": np.full((dms, samples), np.nan, np.float32),
        "in": rng.uniform(-1, 1, (channels, in_samples)).astype(np.float32),
        "delays": delays,
        "channels": np.int32(channels),
        "dms": np.int32(dms),
        "samples": np.int32(samples),
        "in_samples": np.int32(in_samples),
    }


def expected(inputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """The right outputs, summed in float64, channel by channel."""
    signal, samples = inputs["in"].astype(np.float64), int(inputs["samples"])
    total = np.zeros(inputs["out"].shape)
    for dm, delays in enumerate(inputs["delays"]):
        for channel, delay in enumerate(delays):
            total[dm] += signal[channel, delay : delay + samples]
    return {"out": total.astype(np.float32)}


def work(inputs: dict[str, Any]) -> float:
    """Floating-point operations of one run: additions."""
    return 1.0 * inputs["channels"] * inputs["dms"] * inputs["samples"]
