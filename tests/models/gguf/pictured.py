"""Saves tiny checkpoints with a vision encoder, of families that llama.cpp's converter knows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy

from tests.models.gguf.checkpoints import HYBRID, PLACES, PROMPT, add_drafting_layer, as_published
from tests.models.gguf.image_families import SEEING
from tests.models.gguf.image_parts import BOUNDS, Seeing


def save_seeing(name: str, folder: Path, tokenizer: Path) -> Any:
    """Save the checkpoint of a family with a vision encoder. Returns its logits for a prompt with an image.

    The tokens of the image come after the vocabulary, and attend only to earlier tokens, as all others do.
    """
    import torch
    import transformers

    from tests.reference.repairs import repair

    repair()
    seeing = SEEING[name]
    known = save_vocabulary(seeing, folder, tokenizer)
    ids = {key: known[text] for key, text in seeing.tokens.items()}
    config = getattr(transformers, f"{seeing.kind}Config")(**seeing.settings, **ids)
    torch.manual_seed(sum(map(ord, name)))
    model = getattr(transformers, f"{seeing.kind}ForConditionalGeneration")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = (torch.randn_like(parameter) * 2).round() / 16
            parameter.copy_(noise if parameter.ndim > 1 else parameter + noise)
        for key, buffer in model.named_buffers():
            if key.endswith(("layer_scalar", "std_bias", "std_scale")):
                buffer.add_((torch.randn_like(buffer) * 2).round() / 16)
            elif (bound := BOUNDS.get(key.rpartition(".")[2])) is not None:
                buffer.fill_(bound)
    model.save_pretrained(folder)
    as_published(folder / "model.safetensors", seeing.kind)
    if HYBRID.items() <= seeing.settings["text_config"].items():
        add_drafting_layer(folder)
        saved = json.loads((folder / "config.json").read_text())
        saved["text_config"]["mtp_num_hidden_layers"] = 1
        (folder / "config.json").write_text(json.dumps(saved))
    (folder / "preprocessor_config.json").write_text(json.dumps(seeing.preprocessor))
    with torch.no_grad():
        prompt = image_prompt(name, known)
        inputs = {key: torch.from_numpy(value) for key, value in seeing.inputs.items()}
        inputs["attention_mask"] = torch.ones(1, len(prompt), dtype=torch.long)
        if "image_grid_thw" in inputs or seeing.kind.startswith("Gemma4"):
            inputs["mm_token_type_ids"] = torch.tensor([[int(i == ids["image_token_id"]) for i in prompt]])
        logits = model(torch.tensor([prompt]), **inputs).logits[0, PLACES]
        return logits[:, : 1 + max(known.values())].float().numpy()  # the converter may leave out rows without a token


def save_vocabulary(seeing: Seeing, folder: Path, tokenizer: Path) -> dict[str, int]:
    """Save a tokenizer with the tokens of a family's images. Returns their ids."""
    for file in tokenizer.iterdir():
        if file.suffix in (".json", ".jinja") and file.name not in ("config.json", "generation_config.json"):
            folder.mkdir(exist_ok=True)
            shutil.copy(file, folder)
    vocabulary = json.loads((folder / "tokenizer.json").read_text())
    first = 1 + max(vocabulary["model"]["vocab"].values())
    known = {text: first + i for i, text in enumerate(seeing.tokens.values())}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    vocabulary["added_tokens"] += [{"id": i, "content": text, **flags} for text, i in known.items()]
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    return known


def save_published(name: str, folder: Path, tokenizer: Path) -> None:
    """Save the checkpoint of a family that transformers does not have, with the names of the one on the hub.

    The same numbers each time, so a test can compare a file that was converted earlier.
    """
    from safetensors.numpy import save_file

    seeing = SEEING[name]
    known = save_vocabulary(seeing, folder, tokenizer)
    draw = numpy.random.RandomState(sum(map(ord, name)))
    weights = dict[str, Any]()
    for key, shape in seeing.tensors.items():
        noise = (draw.standard_normal(shape) * 2).round() / 16
        is_norm = len(shape) == 1 and key.endswith(".weight")
        weights[key] = (noise + is_norm).astype(numpy.float32)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    ids = {key: known[text] for key, text in seeing.tokens.items()}
    (folder / "config.json").write_text(json.dumps({**seeing.settings, **ids}))
    (folder / "preprocessor_config.json").write_text(json.dumps(seeing.preprocessor))


def image_prompt(name: str, known: dict[str, int]) -> list[int]:
    """The prompt with an image inside, by a vocabulary."""
    return [*PROMPT[:5], *(known[text] for text in SEEING[name].image), *PROMPT[5:]]
