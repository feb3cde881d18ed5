"""Small models that see, with random weights, made on the spot through mlx-vlm's own classes; nothing is fetched."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from localai_shim.media import Media, MediaKind
from tests.vision_families import FAMILIES as FAMILIES
from tests.vision_families import families as families
from tests.vision_parts import FIRST_ID as FIRST_ID
from tests.vision_parts import ID, SPECIALS, Family
from tests.vision_parts import TEMPLATE as TEMPLATE


def make_model(folder: Path, kind: str, **changes: Any) -> Path:
    """Save a random model of a family, with its tokenizer and processor. Returns the folder."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_vlm.utils import get_model_and_args, update_module_configs

    family = FAMILIES[kind]
    folder.mkdir(parents=True, exist_ok=True)
    config = {**family.config, "eos_token_id": ID["<eos>"], **changes}
    _write(folder / "config.json", config)
    _write(folder / "preprocessor_config.json", family.pixels)
    if family.processor:
        _write(folder / "processor_config.json", family.processor)
    _save_tokenizer(folder, family)
    module, _ = get_model_and_args(dict(config))
    plain = json.loads(json.dumps(config))
    made = module.ModelConfig.from_dict(plain)
    made = update_module_configs(made, module, plain, ["text", "vision", "perceiver", "projector", "audio"])
    mx.random.seed(3)
    model = module.Model(made)
    weights = {
        name: mx.random.normal(array.shape) * 0.25 if array.ndim > 1 else array
        for name, array in tree_flatten(model.parameters())
    }
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


@functools.cache
def tiny_vision(kind: str) -> Path:
    """The folder of a tiny model of a family; made once per test session."""
    root = Path(tempfile.mkdtemp(prefix="localai_shim-vision-"))
    return make_model(root / f"tiny-{kind}", kind)


def picture(height: int, width: int, *, seed: int = 0, detail: Any = "auto") -> Media:
    """An image of noise."""
    pixels = np.random.default_rng((seed, height, width)).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Media("image", pixels, "messages[0].content[0].image_url", detail)


def film(frames: int, height: int, width: int, *, rate: float = 2.0) -> Media:
    """A video of noise."""
    pixels = np.random.default_rng(frames).integers(0, 255, (frames, height, width, 3), dtype=np.uint8)
    return Media("video", pixels, "messages[0].content[0].video_url", rate=rate)


def sound(seconds: float, *, rate: float = 16000.0) -> Media:
    """Noise."""
    samples = np.random.default_rng(7).uniform(-0.5, 0.5, round(seconds * rate)).astype(np.float32)
    return Media("audio", samples, "messages[0].content[0].input_audio", rate=rate)


def user(text: str, *kinds: MediaKind) -> list[dict[str, Any]]:
    """A conversation of one message, media first."""
    return [{"role": "user", "content": [*({"type": kind} for kind in kinds), {"type": "text", "text": text}]}]


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value))


def _save_tokenizer(folder: Path, family: Family) -> None:
    """A tokenizer of bytes and special tokens, or the family's own."""
    config = _bytes(folder, family) if family.tokenizer is None else family.tokenizer(folder)
    template = family.template
    if template is not None:
        texts = {"IMAGE": family.image, "VIDEO": family.video, "AUDIO": family.audio}
        for name, text in texts.items():
            template = template.replace(name, text)
        config["chat_template"] = template
    _write(folder / "tokenizer_config.json", config)


def _bytes(folder: Path, family: Family) -> dict[str, Any]:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIALS)
    assert tokenizer.token_to_id(SPECIALS[-1]) == ID[SPECIALS[-1]]
    tokenizer.save(str(folder / "tokenizer.json"))
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "bos_token": "<bos>",
        "extra_special_tokens": family.specials,
    }
