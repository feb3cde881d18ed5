"""Names of models that people know from OpenAI, other services, and Ollama, and the models to use here for them."""

from __future__ import annotations

import re

_SERVICES = {
    "OpenAI": r"(gpt-(?!oss|2|j|neo)|chatgpt-|codex-|text-embedding-|text-moderation-|davinci-|babbage-|whisper-\d|"
    r"tts-\d|dall-e-|sora-|omni-moderation-|computer-use-)[^/]*|o[1-9](-[^/]*)?",
    "Anthropic": r"claude-[^/]*",
    "Google": r"gemini-[^/]*",
}
_PREFIX = re.compile(r"(openai|azure|anthropic|google|gemini)/")
_HUB = re.compile(r"(?:https?://)?(?:hf\.co|huggingface\.co)/([^/:]+/[^/:]+)(?:[/:].*)?")
_FILE = re.compile(r"([^/:]+/[^/:]+):([^/:]+)")
_OLLAMA = {
    "deepseek-r1:7b": "DeepSeek-R1-Distill-Qwen-7B-4bit",
    "gemma3": "gemma-3-4b-it-4bit",
    "gemma3:4b": "gemma-3-4b-it-4bit",
    "gpt-oss": "gpt-oss-20b-MXFP4-Q8",
    "gpt-oss:20b": "gpt-oss-20b-MXFP4-Q8",
    "llama3.1": "Meta-Llama-3.1-8B-Instruct-4bit",
    "llama3.1:8b": "Meta-Llama-3.1-8B-Instruct-4bit",
    "llama3.2": "Llama-3.2-3B-Instruct-4bit",
    "llama3.2:1b": "Llama-3.2-1B-Instruct-4bit",
    "llama3.2:3b": "Llama-3.2-3B-Instruct-4bit",
    "mistral": "Mistral-7B-Instruct-v0.3-4bit",
    "mistral:7b": "Mistral-7B-Instruct-v0.3-4bit",
    "phi4": "phi-4-4bit",
    "phi4:14b": "phi-4-4bit",
    "qwen2.5": "Qwen2.5-7B-Instruct-4bit",
    "qwen2.5:7b": "Qwen2.5-7B-Instruct-4bit",
    "qwen3": "Qwen3-8B-4bit",
    "qwen3:4b": "Qwen3-4B-4bit",
    "qwen3:8b": "Qwen3-8B-4bit",
}
"""Ollama's name -> the repository of mlx-community. Only those that exist."""
_PASS = (
    "Pass a Hugging Face ID such as 'mlx-community/Qwen3-8B-4bit', a folder, or nothing for the small bundled model."
)


def explain_name(name: str) -> str | None:
    """Explain why a name is no model here, and what to pass; None if the Hugging Face Hub may know it."""
    if found := _HUB.fullmatch(name):
        return f"'{name}' is an address. Pass the Hugging Face ID alone: '{found[1]}'."
    if name.startswith(("http://", "https://")):
        return f"'{name}' is an address, and this client runs the model itself. {_PASS}"
    plain = name.lower()
    for service, pattern in _SERVICES.items():
        if re.fullmatch(pattern, _PREFIX.sub("", plain, count=1)):
            return f"'{name}' is a model of {service} and is not available locally. {_PASS}"
    plain = plain.removesuffix(":latest")
    if plain in _OLLAMA:
        return (
            f"'{name}' is Ollama's name for a model. Run `ollama pull {name}`, or pass its Hugging Face ID: "
            f"'mlx-community/{_OLLAMA[plain]}'."
        )
    if found := _FILE.fullmatch(name):
        return (
            f"'{name}' names a GGUF file that is not on this machine. Run `hf download {found[1]} --include "
            f"'*{found[2]}*.gguf'`."
        )
    if ":" in name and name.count("/") < 2:
        return f"'{name}' is not a Hugging Face ID: these have no colon, as Ollama's names have. {_PASS}"
    return None
