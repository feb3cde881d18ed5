"""Arguments that people know from llama-cpp-python, Ollama, vLLM and transformers, and what to use here for them."""

from __future__ import annotations

_OURS = {
    "context_length": "n_ctx num_ctx ctx_size context_size context_window max_model_len max_seq_len max_seq_length",
    "max_rows": "max_num_seqs max_batch_size n_parallel num_parallel n_seq_max",
    "max_queue": "max_queue_size",
    "tensor_parallel": "tensor_parallel_size tp_size",
    "model": "model_path model_id model_name repo_id pretrained_model_name_or_path",
    "draft_model": "speculative_model speculative_config draft_model_path",
    "draft_tokens": "num_speculative_tokens num_draft_tokens",
    "kv_bits": "kv_cache_dtype type_k type_v",
    "adapter_path": "lora_path lora_adapter",
    "adapters": "enable_lora lora_modules",
    "reasoning_format": "reasoning_parser",
    "tool_format": "tool_call_parser chat_format",
    "progress": "show_progress verbose",
}
_WITH_MORE = {
    "gpu_memory_utilization": "Use 'memory_limit' here, which is in bytes.",
    "max_memory": "Use 'memory_limit' here, which is in bytes.",
    "enable_prefix_caching": "Prefix caching is always on; 'prefix_cache_bytes=0' turns it off.",
}
_GROUPS = {
    "Leave it out: all of the model runs on the GPU, or on the CPU without one.": (
        "n_gpu_layers num_gpu gpu_layers device device_map main_gpu tensor_split n_threads num_thread num_threads"
    ),
    "Leave it out: the checkpoint decides. Load one that is quantized, such as 'mlx-community/Qwen3-8B-4bit'.": (
        "dtype torch_dtype quantization quantization_config load_in_4bit load_in_8bit load_format"
    ),
    "Leave it out: the environment variable HF_HOME says where models are kept.": "download_dir cache_folder",
}
_OF_REQUESTS = {
    "chat.completions.create(..., {}=...)": (
        "temperature top_p max_tokens max_completion_tokens stop stream seed frequency_penalty presence_penalty "
        "logprobs top_logprobs logit_bias messages tools tool_choice response_format reasoning_effort"
    ),
    "responses.create(..., {}=...)": "input instructions max_output_tokens",
    "chat.completions.create(..., max_completion_tokens=...)": "num_predict max_new_tokens",
    "chat.completions.create(..., extra_body={{'{}': ...}})": "top_k min_p repetition_penalty",
    "chat.completions.create(..., extra_body={{'repetition_penalty': ...}})": "repeat_penalty",
}

_HINTS = {
    **{name: f"Use '{ours}' here." for ours, names in _OURS.items() for name in names.split()},
    **{name: hint for hint, names in _GROUPS.items() for name in names.split()},
    **{
        name: f"It belongs to requests: client.{call.format(name)}."
        for call, names in _OF_REQUESTS.items()
        for name in names.split()
    },
    **_WITH_MORE,
}


def explain_argument(name: str) -> str:
    """Explain what to use for an argument that others have; empty if none has it."""
    return _HINTS.get(name, "")
