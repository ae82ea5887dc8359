"""vLLM's own refusals of a configuration, argparse's and pydantic's, and of a port.

They are printed before anything is loaded, behind an exception's class, behind pydantic's
``Value error,`` or behind the program's name.
"""

from __future__ import annotations

from vllm_diag.messages import Message
from vllm_diag.messages._readers import line_rest, python_name, whole
from vllm_diag.quantities import Reader, count, number, words

_prog = Reader("prog", r"[\w./ -]{1,80}?", str, ("vllm serve", "api_server.py"))
_flag = Reader("flag", r"-{1,2}[\w./-]{1,120}?", str, ("--kv-cache-dtype", "--max-model-len"))
_model = Reader("config", r"\w{0,40}(?:Config|Args)", str, ("ModelConfig", "EngineArgs"))
_quant = Reader("quantization", r"[\w.-]{1,60}", str, ("awq", "gptq_marlin"))
_host = Reader("host", r"[^'\"()]{1,120}", str, ("0.0.0.0", "::"))


def _length_or_none(text: str) -> int | None:
    """Read a tokenizer's limit; 10**30 stands for "none" in tokenizer files."""
    value = None if text == "None" else int(float(text))
    return value if value is not None and value < 10**12 else None


_length = Reader("length", r"\d{1,40}(?:\.0)?|None", _length_or_none, ("16384", "None"))

MESSAGES = (
    Message(
        code="model-len-over-limit",
        emitter="vLLM",
        seen="0.2.0 - 0.33.0 (a warning where VLLM_ALLOW_LONG_MAX_MODEL_LEN is set)",
        fatal=True,
        reads={
            "max_model_len": count,
            "key": Reader("key", r"\w{1,60}", str, ("max_position_embeddings",)),
            "derived_max_model_len": whole,
            "model_max_length": _length,
        },
        wordings=(
            "User-specified max_model_len ({max_model_len}) is greater than the derived max_model_len"
            " (⟦{key}=⟧{derived_max_model_len}¦⟦ or model_max_length={model_max_length}⟧ in model's config.json)",
        ),
        samples=(
            "User-specified max_model_len (40960) is greater than the derived max_model_len"
            " (max_position_embeddings=8192.0 or model_max_length=None in model's config.json). To allow overriding"
            " this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1.",
            "User-specified max_model_len (16384) is greater than the derived max_model_len (seq_length=8192 in model's"
            " config.json). This may lead to incorrect model outputs or CUDA errors.",
        ),
        means="A longer context was asked for than the model's configuration gives.",
    ),
    Message(
        code="batched-tokens-too-few",
        emitter="vLLM",
        seen="0.2.0 - 0.33.0",
        fatal=True,
        reads={
            "max_num_batched_tokens": count,
            "max_model_len": count,
            "max_num_seqs": count,
            "tokens_per_item": count,
            "block_size": count,
            "scheduled_tokens": Reader("scheduled_tokens", r"-?\d{1,12}", int, ("-8",)),
        },
        wordings=(
            "max_num_batched_tokens ({max_num_batched_tokens}) is smaller than max_model_len ({max_model_len})",
            "max_num_batched_tokens ({max_num_batched_tokens}) must be greater than or equal to max_num_seqs"
            " ({max_num_seqs})",
            "Chunked MM input disabled but max_tokens_per_mm_item ({tokens_per_item}) is larger than"
            " max_num_batched_tokens ({max_num_batched_tokens})",
            "In Mamba cache align mode, block_size ({block_size}) must be <= max_num_batched_tokens"
            " ({max_num_batched_tokens})",
            "max_num_scheduled_tokens is set to {scheduled_tokens} based on the speculative decoding settings",
        ),
        samples=(
            "max_num_batched_tokens (4096) is smaller than max_model_len (16384). This effectively limits the maximum"
            " sequence length to max_num_batched_tokens",
            "max_num_batched_tokens (128) must be greater than or equal to max_num_seqs (256).",
            "Chunked MM input disabled but max_tokens_per_mm_item (6144) is larger than max_num_batched_tokens (2048)."
            " Please increase max_num_batched_tokens.",
            "In Mamba cache align mode, block_size (2096) must be <= max_num_batched_tokens (2048).",
            "max_num_scheduled_tokens is set to -8 based on the speculative decoding settings, which does not allow any"
            " tokens to be scheduled.",
        ),
        means="One step of the scheduler may hold fewer tokens than the other settings need.",
    ),
    Message(
        code="parallel-size-indivisible",
        emitter="vLLM",
        seen="0.1.4 - 0.33.0",
        fatal=True,
        reads={
            "attention_heads": count,
            "tensor_parallel_size": count,
            "layers": count,
            "pipeline_parallel_size": count,
            "input_size": count,
            "output_size": count,
            "input_size_per_partition": count,
            "output_size_per_partition": count,
            "block_n": count,
            "block_k": count,
            "group_size": count,
            "min_thread_n": count,
            "min_thread_k": count,
            "numerator": count,
            "denominator": count,
            "vocabulary": count,
        },
        wordings=(
            "Total number of attention heads ({attention_heads}) must be divisible by tensor parallel size"
            " ({tensor_parallel_size})",
            "Total number of hidden layers ({layers}) must be divisible by pipeline parallel size"
            " ({pipeline_parallel_size})",
            "Weight input_size_per_partition = {input_size_per_partition} is not divisible by ⟨weight quantization"
            " block_k = {block_k}|min_thread_k = {min_thread_k}|group_size = {group_size}⟩",
            "Weight ⟨output_size_per_partition|output_partition_size⟩ = {output_size_per_partition} is not divisible by"
            " ⟨weight quantization block_n = {block_n}|min_thread_n = {min_thread_n}⟩",
            "The output_size of gate's and up's weight = {output_size} is not divisible by weight quantization block_n"
            " = {block_n}",
            "The input_size of down's weight = {input_size} is not divisible by weight quantization block_k ="
            " {block_k}",
            "The ⟨input|output⟩ size is not aligned with the quantized weight shape. This can be caused by too large"
            " tensor parallel size",
            "{numerator} is not divisible by {denominator}",
        ),
        samples=(
            "Total number of attention heads (40) must be divisible by tensor parallel size (6).",
            "Total number of hidden layers (61) must be divisible by pipeline parallel size (4).",
            "Weight input_size_per_partition = 10944 is not divisible by min_thread_k = 128. Consider reducing"
            " tensor_parallel_size or running with --quantization gptq.",
            "Weight output_partition_size = 576 is not divisible by weight quantization block_n = 128.",
            "The output_size of gate's and up's weight = 192 is not divisible by weight quantization block_n = 128.",
            "The input_size of down's weight = 192 is not divisible by weight quantization block_k = 128.",
            "The input size is not aligned with the quantized weight shape. This can be caused by too large tensor"
            " parallel size.",
            "14 is not divisible by 4",
        ),
        means="Something of the model cannot be cut into that many equal parts.",
    ),
    Message(
        code="lora-rank-over-limit",
        emitter="vLLM",
        seen="0.3.0 - 0.33.0",
        anywhere=True,
        reads={"rank": count, "max_lora_rank": count},
        wordings=("LoRA rank {rank} is greater than max_lora_rank {max_lora_rank}",),
        samples=("LoRA rank 64 is greater than max_lora_rank 16.",),
        means="An adapter has a larger rank than the engine was set up for.",
    ),
    Message(
        code="unknown-argument",
        emitter="argparse, Python",
        fatal=True,
        reads={"prog": _prog, "arguments": line_rest, "name": python_name, "flag": _flag},
        wordings=(
            "{prog}: error: unrecognized arguments: {arguments}",
            "{prog}: error: ambiguous option: {flag} could match",
            "⟨EngineArgs|AsyncEngineArgs|LLM|VllmConfig|ModelConfig⟩.__init__() got an unexpected keyword argument"
            " '{name}'",
        ),
        samples=(
            "vllm serve: error: unrecognized arguments: --max-length 4096",
            "api_server.py: error: ambiguous option: --max could match --max-model-len, --max-num-seqs",
            "EngineArgs.__init__() got an unexpected keyword argument 'max_length'",
        ),
        means="A flag or argument that this release does not know.",
    ),
    Message(
        code="argument-refused",
        emitter="argparse",
        fatal=True,
        reads={
            "prog": _prog,
            "flag": _flag,
            "value": Reader("value", r"[^'\s]{0,200}?", str, ("int3",)),
            "kind": words,
        },
        wordings=(
            "{prog}: error: argument {flag}: ⟨invalid choice: ⟦'⟧{value}⟦'⟧ (choose from|invalid {kind} value:"
            " '{value}'|expected one argument|expected at least one argument|not allowed with argument|Invalid|invalid|"
            "Value⟩",
            "{prog}: error: the following arguments are required: ",
        ),
        samples=(
            "vllm serve: error: argument --dtype: invalid choice: 'fp16' (choose from 'auto', 'half', 'float16')",
            "api_server.py: error: argument --max-model-len: invalid human_readable_int value: '8kk'",
            "vllm serve: error: argument --port: expected one argument",
            "bench.py: error: the following arguments are required: --model",
        ),
        means="A flag has a value that it cannot take.",
    ),
    Message(
        code="config-validation-failed",
        emitter="pydantic",
        fatal=True,
        reads={"errors": count, "config": _model, "field": Reader("field", r"[\w.\[\]-]{1,80}?", str, ("block_size",))},
        wordings=(
            "{errors} validation error⟦s⟧ for {config}¦ {field} ⟨Input should be|Unexpected keyword argument|Extra"
            " inputs are not permitted|Field required|Value error,⟩",
        ),
        samples=(
            "1 validation error for CacheConfig\nblock_size\n  Input should be 1, 8, 16 or 32 [type=literal_error,"
            " input_value=48, input_type=int]",
            "2 validation errors for ModelConfig",
        ),
        means="A configuration object refused its values; the lines behind it say which and why.",
    ),
    Message(
        code="configuration-refused",
        emitter="vLLM",
        seen="0.1.4 - 0.33.0",
        fatal=True,
        reads={
            "gpu_memory_utilization": number,
            "connector": words,
            "in_config": _quant,
            "in_argument": _quant,
            "models": count,
            "slots": count,
            "quantization": _quant,
            "offload": number,
            "parser": _quant,
            "flag": _flag,
            "dtype": Reader("dtype", r"torch\.\w{3,20}?(?=isnot)", str, ("torch.bfloat16",)),
        },
        wordings=(
            "GPU memory utilization must be less than 1.0. Got {gpu_memory_utilization}",
            "Expandable segments are not compatible with memory pool",
            "KV connector {connector} is incompatible with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "Quantization method specified in the model config ({in_config}) does not match the quantization method"
            " specified in the `quantization` argument ({in_argument})",
            "Number of requested models ({models}) is greater than the number of GPU model slots ({slots})",
            "Unknown quantization method: {quantization}.",
            "CPU offload space must be non-negative, but got {offload}",
            "Sleep mode is ⟨not supported on current platform|only supported on CUDA devices⟩",
            "Model Runner V2 requires Triton.",
            "⟦'⟧invalid ⟨tool call|reasoning⟩ parser: {parser} (chose from",
            "⟨Error: |⟩⟦`⟧--enable-auto-tool-choice⟦`⟧ requires ⟦`⟧--tool-call-parser",
            "VLLM_USE_V1=1 is not supported with {flag}.",
            "{dtype} is not supported for quantization method {quantization}. Supported dtypes:",
        ),
        samples=(
            "GPU memory utilization must be less than 1.0. Got 1.2.",
            "Expandable segments are not compatible with memory pool. Please track",
            "KV connector NixlConnector is incompatible with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True unless",
            "Quantization method specified in the model config (compressed-tensors) does not match the quantization"
            " method specified in the `quantization` argument (awq).",
            "Number of requested models (3) is greater than the number of GPU model slots (2).",
            "Unknown quantization method: int3. Must be one of ['awq', 'fp8'].",
            "CPU offload space must be non-negative, but got -1.0",
            "Sleep mode is not supported on current platform.",
            "Model Runner V2 requires Triton.",
            "invalid tool call parser: hermess (chose from { hermes,mistral })",
            "Error: --enable-auto-tool-choice requires --tool-call-parser",
            "VLLM_USE_V1=1 is not supported with --kv-cache-dtype.",
            "torch.bfloat16 is not supported for quantization method awq. Supported dtypes: [torch.float16]",
        ),
        means="Two settings contradict each other, or one is out of its range.",
    ),
    Message(
        code="port-taken",
        emitter="uvicorn, vLLM, ZeroMQ",
        fatal=True,
        reads={"errno": count, "host": _host, "port": count, "address": _host},
        wordings=(
            "[Errno {errno}] error while attempting to bind on address ('{host}', {port}⟦, 0, 0⟧): ⟦[errno {errno}] ⟧"
            "address already in use",
            "⟦OSError: ⟧[Errno {errno}] Address already in use",
            "Address already in use (addr='{address}')",
        ),
        samples=(
            "[Errno 98] error while attempting to bind on address ('0.0.0.0', 8080): address already in use",
            "OSError: [Errno 98] Address already in use",
            "[Errno 98] Address already in use",
            "Address already in use (addr='tcp://127.0.0.1:5557')",
        ),
        means="The port is taken by another process.",
    ),
    Message(
        code="port-holder",
        emitter="vLLM",
        seen="0.5.5 - 0.33.0",
        reads={
            "port": count,
            "pid": count,
            "holder": Reader("holder", r"[^']{1,64}", str, ("pt_main_thread",)),
            "other": words,
        },
        wordings=("port {port} is used by process ¦psutil.Process(pid={pid}, name='{holder}'",),
        samples=(
            "port 8080 is used by process psutil.Process(pid=4711, name='pt_main_thread', status='sleeping') launched"
            " with command:",
        ),
        means="Who holds the port.",
    ),
)
