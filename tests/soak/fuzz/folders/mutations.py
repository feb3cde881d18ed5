"""Ways to break a model's folder or file."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.soak.fuzz import wild

SPY = "open({!r}, 'a').write('ran')\n"
"""Python code that leaves a trace where it is run."""

ADDED: dict[str, list[Any]] = {
    "quantization": [{"bits": 4}, {"group_size": 0, "bits": 4}, {"group_size": 64, "bits": 2**40}, {"bits": "x"}, 7],
    "quantization_config": [
        {"quant_method": "mxfp4"},
        {"quant_method": "awq", "bits": 0},
        {"quant_method": "bitsandbytes"},
        {"quant_method": "compressed-tensors", "format": 7},
        {"quant_method": None},
        {"bits": 4},
        [],
        7,
    ],
    "rope_scaling": [{"type": "linear"}, {"rope_type": "yarn", "factor": 0}, {"rope_type": "x", "factor": -1}, 3, "y"],
    "rope_parameters": [{"rope_type": "llama3"}, {"rope_theta": 0}, [], {"full_attention": 1}],
    "eos_token_id": [-1, 10**12, [], [None], ["x"], "2", 2.5, {"a": 1}, [10**30], list(range(5000))],
    "model_type": [
        "mamba2",
        "bert",
        "qwen2_vl",
        "gemma3",
        "deepseek_v3",
        "../evil",
        "os",
        "",
        None,
        [],
        "a.b",
        "x" * 999,
    ],
    "architectures": [["XForSequenceClassification"], ["BertModel"], "BertForSequenceClassification", [None], {}, 7],
    "auto_map": [
        {"AutoConfig": "evil.Evil", "AutoTokenizer": ["evil.Evil", None], "AutoModelForCausalLM": "evil.Evil"}
    ],
    "model_file": ["evil.py", "../evil.py", 3],
    "text_config": [{}, [], "x", {"model_type": "llama", "hidden_size": -1}, wild.nested(900)],
    "vision_config": [{}, {"model_type": "x"}, 1, {"hidden_size": 0, "patch_size": 0}],
    "audio_config": [{}, 1],
    "layer_types": [[], ["full_attention"], "x", [None] * 2, ["sliding_attention"] * 1000],
    "sliding_window": [0, -5, 10**18, "x", None],
    "num_experts": [0, -1, 10**9],
    "dtype": ["float64", "x", None, 7],
    "torch_dtype": ["float8", [], "bfloat16"],
    "tie_word_embeddings": [True, "x", None],
    "max_position_embeddings": [0, -1, 1, 2, 10**18, 1.5, "9"],
    "vocab_size": [0, 1, -1, 399, 401, 10**9],
    "tool_parser_type": ["json_tools", "../x", 7, "os"],
    "tokenizer_class": ["EvilTokenizer", "LlamaTokenizer", "BertTokenizer", "T5Tokenizer", None, 7, "GPT2Tokenizer"],
    "chat_template": ["{{ 1/0 }}", 7, [], [{"name": "default"}], [{"name": "default", "template": None}], {"a": 1}, ""],
    "added_tokens_decoder": [
        {"x": {"content": "a"}},
        {"-1": {"content": "a"}},
        {"0": None},
        {"99999": {"content": "z"}},
    ],
    "extra_special_tokens": [{"x": 7}, ["a"], 7],
    "model_max_length": [-1, 0, 1, 10**40, "x"],
    "temperature": [-1, "hot", None, 1e30],
    "top_k": [-1, "x", 10**30],
    "id2label": [{}, {"0": 0}, {"x": "y"}, []],
    "processor_class": ["Evil", 7, "LlavaProcessor"],
    "image_processor_type": ["Evil", None, "CLIPImageProcessor"],
}

TEMPLATES = [
    "{{ raise_exception('no') }}",
    "{{ 1/0 }}",
    "{% for",
    "{{ messages[99].content }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{{ 'x' * 10000000000 }}",
    "{{ 'x'.ljust(9999999999) }}",
    "{{ '%09999999999d' % 1 }}",
    "{{ '{:>9999999999}'.format(1) }}",
    "{{ 'x'.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{{ (''|attr('__class__')) }}",
    "{{ self.__init__.__globals__ }}{{ lipsum.__globals__['os'] }}",
    "{% set x = [1] %}{% for i in x %}{{ x.append(i) }}{% endfor %}",
    "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{{ 2 ** 2 ** 2 ** 2 ** 2 ** 2 }}",
    "{{ 10 ** 100000000 }}",
    "{% include 'x' %}",
    "{% import 'os' as o %}",
    "{% extends 'x' %}",
    "{{ range(10**12) | list }}",
    "{{ messages | tojson(indent=999999) }}",
    "{{ messages.clear() }}{{ messages.append(messages) }}{{ messages | tojson }}",
    "{% if true %}" * 500 + "{% endif %}" * 500,
    "(" * 50 + "{{ " + "(" * 300 + "1" + ")" * 300 + " }}",
    "{{ '\\ud800' }}",
    "{{ messages | map('upper') | join }}",
    "{{ ('a' * 50000) | replace('a', 'a' * 50000) }}",
    "{{ lipsum(n=100000) }}",
    "{{ ['a'] * 10000000000 }}",
    "{{ ('(a+)+$' ~ 'a' * 99) | list | batch(1) | list }}",
    "{{ strftime_now('%Y' * 99999) }}",
    "\0\0\0",
    "",
    "{{ messages[0].content }}<|im_end|>" * 200,
]


def break_folder(folder: Path, rng: random.Random, trace: Path) -> list[str]:
    """Change a folder in one to three ways. Returns the changes in words.

    Args:
        folder: it is changed.
        rng: decides.
        trace: a file that code of the folder writes if it is run.
    """
    told: list[str] = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        kinds: list[tuple[Callable[[Path, random.Random, Path], str], int]] = [
            *((_json, 8), (_added, 6), (_bytes, 3), (_file, 3)),
            *((_weights, 6), (_template, 3), (_tokenizer, 3), (_code, 1)),
        ]
        [change] = rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
        told.append(f"{change.__name__[1:]}: {change(folder, rng, trace)}")
    return told


def break_file(file: Path, rng: random.Random) -> list[str]:
    """Change a GGUF file in one to three ways. Returns the changes in words."""
    content = bytearray(file.read_bytes())
    told = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        told.append(_lie(content, rng) if rng.random() < 0.6 else _damage(content, rng))
    file.write_bytes(bytes(content))
    return told


def _files(folder: Path, *patterns: str) -> list[Path]:
    found = [path for pattern in patterns for path in folder.rglob(pattern)]
    return sorted(path for path in found if path.is_file() and path.lstat().st_size < 1 << 30 and not path.is_symlink())


def _read(path: Path) -> Any:
    """What a file of JSON says; None where it is none, or no longer a file."""
    if path not in _files(path.parent, path.name):
        return None
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return None


def _json(folder: Path, rng: random.Random, trace: Path) -> str:
    files = _files(folder, "*.json")
    if not files:
        return "nothing"
    path = rng.choice([*files, *[file for file in files if file.name == "config.json"] * 3])
    tree = _read(path)
    if not isinstance(tree, dict | list) or rng.random() < 0.05:
        tree = wild.value(rng)
        path.write_text(json.dumps(tree))
        return f"{path.name} is {tree!r}"[:200]
    told = wild.changed(tree, rng)
    path.write_text(json.dumps(tree))
    return f"{path.name}: {told}"


def _added(folder: Path, rng: random.Random, trace: Path) -> str:
    names = ["config.json"] * 4 + ["tokenizer_config.json"] * 2 + ["generation_config.json", "preprocessor_config.json"]
    path = folder / rng.choice(names)
    tree = {} if not os.path.lexists(path) else _read(path)
    if not isinstance(tree, dict):
        return "nothing"
    key = rng.choice(list(ADDED))
    tree[key] = rng.choice(ADDED[key])
    path.write_text(json.dumps(tree))
    return f"{path.name}: {key} is {tree[key]!r}"[:200]


def _damage(content: bytearray, rng: random.Random) -> str:
    """Change some bytes."""
    how = rng.randrange(6)
    if how == 0:
        del content[rng.randrange(len(content) + 1) :]
        return f"cut to {len(content)} bytes"
    if how == 1:
        content[:] = rng.randbytes(rng.choice([1, 8, 1000]))
        return "random bytes"
    if how == 2:
        content += rng.choice([b"\0" * 99, b"}", b"garbage", rng.randbytes(99)])
        return "more bytes at the end"
    if how == 3:
        content[:] = rng.choice([b"", b"\xff\xfe", b"\xef\xbb\xbf{}", b"{", b"[" * 100_000, b'{"a":' * 50_000])
        return f"is {bytes(content[:20])!r}"
    for _ in range(rng.choice([1, 4, 40])):
        if content:
            content[rng.randrange(min(len(content), 4000))] = rng.randrange(256)
    return "changed bytes"


def _bytes(folder: Path, rng: random.Random, trace: Path) -> str:
    files = _files(folder, "*")
    if not files:
        return "nothing"
    path = rng.choice(files)
    content = bytearray(path.read_bytes())
    told = _damage(content, rng)
    path.write_bytes(bytes(content))
    return f"{path.name} {told}"


def _file(folder: Path, rng: random.Random, trace: Path) -> str:
    """Have another thing in the place of a file."""
    files = _files(folder, "*")
    if not files:
        return "nothing"
    path = rng.choice(files)
    how = rng.choice(
        ["gone", "folder", "loop", "dangling", "other", "zero", "pipe", "doubled", "huge", "closed", "pointer"]
    )
    if how in ("gone", "folder", "loop", "dangling", "zero", "pipe"):
        path.unlink()
    if how == "folder":
        path.mkdir()
    elif how in ("loop", "dangling", "zero"):
        path.symlink_to({"loop": path, "dangling": folder / "nowhere", "zero": Path("/dev/zero")}[how])
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "other":
        shutil.copyfile(rng.choice(files), folder / "taken")
        os.replace(folder / "taken", path)
    elif how == "doubled":
        shutil.copyfile(path, folder / f"model-2{path.suffix}")
    elif how == "huge":  # sparse: it takes no space
        os.truncate(path, 2**36)
    elif how == "closed":
        path.chmod(0)
    elif how == "pointer":
        path.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n")
    return f"{path.name} is {how}"


def _template(folder: Path, rng: random.Random, trace: Path) -> str:
    text = rng.choice(TEMPLATES)
    path = folder / "tokenizer_config.json"
    tree = _read(path)
    if isinstance(tree, dict) and rng.random() < 0.3:
        for file in _files(folder, "chat_template*"):
            file.unlink()
        tree["chat_template"] = text
        path.write_text(json.dumps(tree))
    else:
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        (folder / "chat_template.jinja").write_text(text, errors="surrogatepass")
    return text[:100]


def _tokenizer(folder: Path, rng: random.Random, trace: Path) -> str:
    """Change the tokenizer's parts, and not its thousand words."""
    path = folder / "tokenizer.json"
    tree = _read(path)
    if not isinstance(tree, dict):
        return "nothing"
    key = rng.choice([key for key in tree if tree[key]] or ["model"])
    part = tree.get(key)
    if key == "model" and isinstance(part, dict):
        if rng.random() < 0.5:
            slim = {name: value for name, value in part.items() if name not in ("vocab", "merges")}
            told = wild.changed(slim, rng)
            tree[key] = {**{name: part[name] for name in ("vocab", "merges") if name in part}, **slim}
        elif isinstance(part.get("vocab"), dict) and part["vocab"]:
            word = rng.choice(list(part["vocab"]))
            part["vocab"][word] = rng.choice([-1, 0, 10**6, 2**32, 2**63, "x", None])
            told = f"{word!r} is {part['vocab'][word]!r}"
        else:
            told = wild.changed(tree, rng, deep=False)
    elif isinstance(part, dict | list):
        told = wild.changed(part, rng)
    else:
        told = wild.changed(tree, rng, deep=False)
    path.write_text(json.dumps(tree))
    return f"{key}: {told}"


def _code(folder: Path, rng: random.Random, trace: Path) -> str:
    """Python code and pickles, under names that libraries look for."""
    spy = SPY.format(str(trace))
    for name in ("evil.py", "modeling.py", "tokenization.py", "__init__.py", "conftest.py", "sitecustomize.py"):
        (folder / name).write_text(spy + "class Evil: pass\nclass Model: pass\nclass ModelArgs: pass\n")
    pickled = b"cbuiltins\nexec\n(V" + spy.encode("unicode_escape") + b"\ntR."
    for name in rng.sample(["pytorch_model.bin", "model.pt", "training_args.bin", "weights.npz", "tokenizer.pkl"], 2):
        (folder / name).write_bytes(pickled)
    for name in ("config.json", "tokenizer_config.json"):
        tree = _read(folder / name)
        if isinstance(tree, dict):
            tree |= {key: rng.choice(ADDED[key]) for key in ("auto_map", "model_file")}
            (folder / name).write_text(json.dumps(tree))
    if rng.random() < 0.4:
        for file in _files(folder, "*.safetensors"):
            file.unlink()
    return "code and pickles"


def _weights(folder: Path, rng: random.Random, trace: Path) -> str:
    """Change the header of a file of weights, or have an index that lies."""
    files = _files(folder, "*.safetensors")
    if not files or rng.random() < 0.1:
        shards = ["../../outside.safetensors", "/etc/passwd", "model-9.safetensors", 7, None]
        index = {"metadata": {}, "weight_map": {"model.norm.weight": rng.choice(shards)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return f"index {index['weight_map']}"
    path = rng.choice(files)
    content = path.read_bytes()
    if len(content) < 8:
        return "nothing"
    size = struct.unpack("<Q", content[:8])[0]
    if rng.random() < 0.15:
        size = rng.choice([0, 1, size - 1, size + 1, 2**31, 2**40, 2**63, 2**64 - 1, len(content)])
        path.write_bytes(struct.pack("<Q", size) + content[8:])
        return f"a header of {size} bytes"
    try:
        header = json.loads(content[8 : 8 + size])
    except ValueError:
        return "nothing"
    if not isinstance(header, dict):
        return "nothing"
    told = _tensor(header, rng)
    made = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(made)) + made + content[8 + size :])
    return told


def _tensor(header: dict[str, Any], rng: random.Random) -> str:
    names = [name for name in header if name != "__metadata__"]
    name = rng.choice(names or [""])
    entry = header.get(name)
    if not isinstance(entry, dict):
        return "nothing"
    how = rng.choice(["offsets", "dtype", "shape", "gone", "extra", "wild", "renamed", "swapped", "metadata"])
    start, end = (entry.get("data_offsets") or [0, 0])[:2]
    if how == "offsets":
        wrong = [
            [end, start],
            [start, 2**62],
            [2**63, 2**63 + end],
            [-1, end],
            [0, 0],
            [start],
            "x",
            [end, 2 * end - start],
            [0, end],
        ]
        entry["data_offsets"] = rng.choice(wrong)
    elif how == "dtype":
        entry["dtype"] = rng.choice(["F16", "BF16", "F64", "I8", "U32", "BOOL", "F8_E4M3", "X", None, 7])
    elif how == "shape":
        shapes = [[], [0], [1], [-1, 4], [2**62, 4], [2**32, 2**32], "x", [1.5], [64], [400, 65], [64, 400], [1] * 99]
        entry["shape"] = rng.choice(shapes)
    elif how == "gone":
        del header[name]
    elif how == "extra":
        header[rng.choice(["", "evil", "model.layers.99.x", "x" * 5000, "model.embed_tokens.scales"])] = dict(entry)
    elif how == "wild":
        header[name] = wild.value(rng)
    elif how == "renamed":
        header[name + rng.choice([".", "x", ".weight"])] = header.pop(name)
    elif how == "swapped":
        other = rng.choice(names)
        header[name], header[other] = header[other], header[name]
    else:
        header["__metadata__"] = wild.value(rng)
    return f"tensor {name[:60]!r}: {how} {str(header.get(name))[:120]}"


def _lie(content: bytearray, rng: random.Random) -> str:
    """Have another number somewhere in the first part of a GGUF file."""
    at = rng.choice([4, 8, 16, rng.randrange(24, 1200), rng.randrange(max(25, len(content)))])
    if at + 8 > len(content):
        return "nothing"
    number = rng.choice([0, 1, 2, 3, 8, 9, 255, 2**16, 2**31, 2**32 - 1, 2**40, 2**63, 2**64 - 1])
    wide = rng.random() < 0.5
    content[at : at + (8 if wide else 4)] = struct.pack(
        "<Q" if wide else "<I", number & (2**64 - 1 if wide else 2**32 - 1)
    )
    return f"{number} at {at}"
