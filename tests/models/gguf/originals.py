"""Tiny checkpoints of transformers, GGUF files that llama.cpp's own converter makes of them, and transformers' logits.

Runs in an environment with torch and transformers, and imports nothing of the package:

    python -m tests.models.gguf.originals LLAMA_CPP TOKENIZER FOLDER [NAME ...]

LLAMA_CPP has `conversion` and `gguf-py` of llama.cpp, and TOKENIZER is a folder with a byte-level tokenizer. FOLDER
gets a compressed file for each family, and one with the logits of those that transformers has. The files in
`converted/` were made like this.
"""

from __future__ import annotations

import json
import lzma
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy

from tests.models.gguf.checkpoints import FAMILIES, PLACES, PROMPT, SIZES, add_drafting_layer, as_published
from tests.models.gguf.image_families import SEEING
from tests.models.gguf.pictured import save_published, save_seeing

DRAFTING = ("qwen3next", "qwen35", "qwen35moe")
"""Families whose checkpoints have an MTP layer."""


def save(name: str, folder: Path, tokenizer: Path) -> Any:
    """Save a family's checkpoint. Returns its logits."""
    import torch
    import transformers

    kind, settings = FAMILIES[name]
    config = getattr(transformers, f"{kind}Config")(**{**({} if "text_config" in settings else SIZES), **settings})
    torch.manual_seed(sum(map(ord, name)))
    architecture = kind.removesuffix("Text") + (
        "ForConditionalGeneration" if "text_config" in settings else "ForCausalLM"
    )
    model = getattr(transformers, architecture)(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim > 1:  # few values, which can be compressed
                parameter.copy_((noise * 2).round() / 16)
            elif "A_log" in key:
                parameter.copy_(noise * 0.3)
            else:
                parameter.add_((noise * 2).round() / 16)
        for key, buffer in model.named_buffers():
            if "e_score_correction_bias" in key or "layer_scalar" in key:
                buffer.add_((torch.randn_like(buffer) * 2).round() / 16)
    model.save_pretrained(folder)
    as_published(folder / "model.safetensors", kind)
    for file in tokenizer.iterdir():
        if file.suffix in (".json", ".jinja") and file.name not in ("config.json", "generation_config.json"):
            shutil.copy(file, folder)
    text = json.loads((folder / "config.json").read_text())
    if name in DRAFTING:
        add_drafting_layer(folder)
        text["mtp_num_hidden_layers"] = 1
    text["architectures"] = [architecture]
    (folder / "config.json").write_text(json.dumps(text))
    with torch.no_grad():
        return model(torch.tensor([PROMPT])).logits[0, PLACES].float().numpy()


def convert(folder: Path, file: Path, *, encoder: bool = False) -> None:
    """Convert a checkpoint to float32, with its tokenizer as a byte-level one; or its vision encoder."""
    import conversion
    import gguf
    from conversion.base import ModelBase, ModelType, TextModel

    TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    hparams = ModelBase.load_hparams(folder, False)
    type_ = ModelType.MMPROJ if encoder else ModelType.TEXT
    kind = conversion.get_model_class(conversion.get_model_architecture(hparams, type_), mmproj=encoder)
    if not encoder:
        kind.set_vocab = lambda self: self._set_vocab_gpt2()
    model = kind(folder, gguf.LlamaFileType.ALL_F32, file)
    model.write()


if __name__ == "__main__":
    llama_cpp, tokenizer, target = map(Path, sys.argv[1:4])
    sys.path[:0] = [str(llama_cpp / "gguf-py"), str(llama_cpp)]
    target.mkdir(exist_ok=True)
    file = target / "logits.npz"
    logits = dict(numpy.load(file)) if file.exists() else {}
    for name in sys.argv[4:] or [*FAMILIES, *SEEING]:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / name
            if name in SEEING and SEEING[name].tensors:
                save_published(name, folder, tokenizer)
            else:
                logits[name] = (save_seeing if name in SEEING else save)(name, folder, tokenizer)
            for encoder in [False, True] if name in SEEING else [False]:
                made = Path(temporary) / (f"mmproj-{name}.gguf" if encoder else f"{name}.gguf")
                convert(folder, made, encoder=encoder)
                (target / f"{made.name}.xz").write_bytes(lzma.compress(made.read_bytes(), preset=9))
    numpy.savez_compressed(file, **logits)
