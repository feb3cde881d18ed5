"""The noise that rows sample with."""

from __future__ import annotations

import numpy as np
import pytest

from localai_shim.engine.noise import BLOCK_TOKENS, PORTION_NUMBERS, Noise, factors, stream_key
from localai_shim.engine.sampling import device

CHI_SQUARE_99 = 160  # with 99 degrees of freedom: exceeded once in 10,000


def keys_of(count: int) -> np.ndarray:
    return np.array([stream_key(seed) for seed in range(count)], dtype=np.uint64)


def uniforms_of(numbers: np.ndarray) -> np.ndarray:
    """The uniforms that Gumbel noise is made of: exp(-1 / factor)."""
    return np.exp(-1 / numbers.astype(np.float64))


def chi_square(uniforms: np.ndarray) -> float:
    """Of 100 equal bins."""
    counts, _ = np.histogram(uniforms, bins=100, range=(0, 1))
    expected = uniforms.size / 100
    return float(((counts - expected) ** 2 / expected).sum())


def test_noise_is_gumbel_s_and_independent_across_seeds_positions_attempts_and_tokens() -> None:
    keys = keys_of(500)
    table = np.stack(
        [factors(keys, np.full(500, position, np.uint64), 8, attempt) for position in range(6) for attempt in (0, 1)]
    )
    uniforms = uniforms_of(table)
    assert uniforms.min() > 0 and uniforms.max() < 1
    for some in (uniforms, uniforms[0], uniforms[:, 0], uniforms[..., 3], uniforms[..., BLOCK_TOKENS + 2]):
        assert chi_square(some) < CHI_SQUARE_99
    for axis in range(3):
        for by in (1, 2):
            moved = np.roll(uniforms, by, axis=axis)
            assert abs(np.corrcoef(uniforms.ravel(), moved.ravel())[0, 1]) < 0.005
    assert len(set(keys.tolist())) == 500
    assert len(np.unique(table)) > 0.98 * table.size  # numbers of 32 bits


def test_rows_have_their_noise_whatever_their_neighbors_and_the_vocabulary_are() -> None:
    keys, positions = keys_of(40), np.arange(40, dtype=np.uint64)
    blocks = PORTION_NUMBERS // 10
    whole = factors(keys, positions, blocks)
    assert whole.shape == (40, BLOCK_TOKENS + blocks) and whole.dtype == np.float32
    for i in (0, 9, 10, 39):
        assert (factors(keys[i : i + 1], positions[i : i + 1], blocks)[0] == whole[i]).all()
    assert (factors(keys, positions, 3) == whole[:, : BLOCK_TOKENS + 3]).all()
    noise = Noise(keys, positions, 5)
    some = noise.take(slice(3, 9))
    assert (some.first() == noise.first()[3:9]).all() and (noise.take(slice(3, 9)).first() == some.first()).all()
    assert (some.second() == factors(keys, positions, 5, attempt=1)[3:9]).all()
    assert (noise.second(np.array([7, 2])) == factors(keys, positions, 5, attempt=1)[[7, 2]]).all()


@pytest.mark.parametrize("few", [False, True], ids=["many", "few"])
def test_the_device_makes_the_host_s_noise(few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU from its own integers, unless they are so few that the host's are copied."""
    monkeypatch.setattr(device, "MAX_HOST_NUMBERS", 2**30 if few else 0)
    noise = Noise(keys_of(300), np.arange(300, dtype=np.uint64), 1_188)
    made = np.array(device._factors(noise, 2))
    np.testing.assert_allclose(made, np.stack([noise.first(), noise.second()]), rtol=2e-6)
    np.testing.assert_array_equal(np.array(device._factors(noise, 1))[0], made[0])


def test_the_noise_of_a_seed_and_position_never_changes() -> None:
    numbers = factors(np.array([stream_key(1234)], np.uint64), np.array([17], np.uint64), 2, attempt=1)[0]
    recorded = [0.5363906, 0.6051592, 0.12035324, 1.142277, 1.9052153]
    assert numbers[[0, 1, 127, 128, 129]].tolist() == pytest.approx(recorded, rel=1e-6)
