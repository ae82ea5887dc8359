"""What the hub, transformers and the readers of checkpoints say about a model's files."""

from __future__ import annotations

from vllm_diag.messages import Message
from vllm_diag.messages._readers import line_rest, path, phrases, quoted
from vllm_diag.quantities import Reader, count, words

_id = Reader("model", r"[^\s'\"`()]{1,300}?", str, ("org/model-7b", "/models/m"))
_url = Reader("url", r"https?://[^\s'\"]{1,400}", str, ("https://huggingface.co/api/models/org/m",))
_file = Reader(
    "file", r"[\w./-]{1,120}?\.\w{2,12}(?=\.Checkout|found|\.|$|\s)", str, ("config.json", "model.safetensors")
)
_type = Reader("type", r"[\w.-]{1,80}", str, ("qwen3_vl", "gemma4"))
_archs = Reader("architectures", r"\[[^\[\]]{0,400}\]", str, ("['FooForCausalLM']",))
_arch = Reader("architecture", r"\w{1,80}?", str, ("FooForCausalLM",))

MESSAGES = (
    Message(
        code="hub-http-error",
        emitter="huggingface_hub, requests",
        seen="huggingface_hub 0.2x - 1.x",
        reads={
            "status": Reader("status", r"(?:401|403|404)", int, ("401", "404")),
            "request": words,
            "what": phrases(
                "what",
                "Repository Not Found",
                "Cannot access gated repo",
                "Cannot access repository",
                "Revision Not Found",
                "Unauthorized",
                "Forbidden",
                "Not Found",
            ),
        },
        wordings=(
            "{status} Client Error: {what} for url",
            "{status} Client Error.⟦ ({request})⟧ {what} for url",
            "{status} Client Error.",
        ),
        samples=(
            "403 Client Error: Forbidden for url: https://huggingface.co/org/m/resolve/main/config.json",
            "401 Client Error. (Request ID: Root=1-68;7e)\n\nRepository Not Found for url:"
            " https://huggingface.co/api/models/org/m/revision/main.",
            "403 Client Error.",
        ),
        means="The hub refused: 401 not known who asks, 403 not allowed, 404 not there.",
    ),
    Message(
        code="hub-gated",
        emitter="huggingface_hub, transformers",
        fatal=True,
        reads={"model": _id},
        wordings=(
            "You are trying to access a gated repo",
            "Access to model {model} is restricted",
            "Your request to access model {model} is awaiting a review",
            "Invalid user token",
            "Invalid username or password.",
            "Token is required (`token=True`), but no token found",
        ),
        samples=(
            "You are trying to access a gated repo.",
            "Access to model org/model-7b is restricted. You must have access to it and be authenticated to access it.",
            "Your request to access model org/model-7b is awaiting a review from the repo authors.",
            "Invalid user token.",
            "Invalid username or password.",
            "Token is required (`token=True`), but no token found.",
        ),
        means="The hub wants a token, or the token may not read this model.",
    ),
    Message(
        code="model-missing",
        emitter="huggingface_hub, transformers, vLLM",
        fatal=True,
        reads={"model": _id, "url": _url, "file": _file, "files": line_rest, "path": path},
        wordings=(
            "{model} is not a local folder and is not a valid model identifier listed on",
            "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{model}'",
            "Repo id must use alphanumeric chars",
            "Incorrect path_or_model_id: '{model}'",
            "Invalid repository ID or local directory specified: '{model}'",
            "{model} does not appear to have a file named {file}.",
            "Can't load ⟨the configuration of|tokenizer for|the model for⟩ '{model}'",
            "Cannot find any model weights with `{model}`",
            "Weight files referenced in index but missing: {files}",
            "Unrecognized model in {path}. Should have a `model_type` key in its config.json",
            "Error no file named {file} found in directory {path}",
        ),
        samples=(
            "org/no-such-model is not a local folder and is not a valid model identifier listed on"
            " 'https://huggingface.co/models'",
            "Repo id must be in the form 'repo_name' or 'namespace/repo_name': '/srv/models/absent'. Use `repo_type`"
            " argument if needed.",
            "Repo id must use alphanumeric chars or '-', '_', '.', '--' and '..' are forbidden",
            "Incorrect path_or_model_id: '/srv/models/absent'. Please provide either the path to a local folder or the"
            " repo_id of a model on the Hub.",
            "Invalid repository ID or local directory specified: '/srv/models/absent'",
            "org/model-7b does not appear to have a file named config.json. Checkout",
            "Can't load the configuration of '/srv/models/absent'. If you were trying to load it from",
            "Cannot find any model weights with `/srv/models/empty`",
            "Weight files referenced in index but missing: ['model-00002-of-00003.safetensors']",
            "Unrecognized model in /srv/models/adapter. Should have a `model_type` key in its config.json",
            "Error no file named model.safetensors found in directory /srv/models/empty.",
        ),
        means="There is no model under this name or path, or files of it are not there.",
    ),
    Message(
        code="hub-unreachable",
        emitter="huggingface_hub, transformers",
        fatal=True,
        reads={"url": _url},
        wordings=(
            "Cannot find an appropriate cached snapshot folder for the specified revision",
            "Cannot find the requested files in the disk cache and outgoing traffic has been disabled",
            "An error happened while trying to locate the file⟦s⟧ on the Hub and we cannot find",
            "We couldn't connect to '{url}' to load",
            "Cannot reach {url}: offline mode is enabled",
            "⟨HTTPSConnectionPool|HTTPConnectionPool⟩(host='⟨huggingface.co|cdn-lfs.huggingface.co|hf-mirror.com⟩'",
        ),
        samples=(
            "Cannot find an appropriate cached snapshot folder for the specified revision on the local disk and"
            " outgoing traffic has been disabled.",
            "Cannot find the requested files in the disk cache and outgoing traffic has been disabled.",
            "An error happened while trying to locate the file on the Hub and we cannot find the requested files in the"
            " local cache.",
            "We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached"
            " files.",
            "Cannot reach https://huggingface.co/api/models/org/m: offline mode is enabled.",
            "HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded with url: /org/m",
        ),
        means="The files are not in the local cache, and the hub cannot be or must not be asked.",
    ),
    Message(
        code="checkpoint-unreadable",
        emitter="safetensors, PyTorch, huggingface_hub, transformers",
        fatal=True,
        anywhere=True,
        reads={
            "reason": phrases(
                "reason",
                "HeaderTooLarge",
                "HeaderTooSmall",
                "InvalidHeaderLength",
                "MetadataIncompleteBuffer",
                "InvalidHeaderDeserialization",
                "InvalidHeaderStart",
                "header too large",
                "header too small",
                "invalid header length",
                "incomplete metadata, file not fully covered",
                "invalid JSON in header",
                "invalid UTF-8 in header",
                "invalid start character in header",
            ),
            "key": quoted,
            "expected": count,
            "found": count,
            "path": path,
            "tensor": Reader("tensor", r"[\w.]{1,200}", str, ("lm_head.weight",)),
        },
        wordings=(
            "Error while deserializing header¦: {reason}",
            "PytorchStreamReader failed ⟨reading|finding⟩",
            "invalid load key, '{key}'",
            "pickle data was truncated",
            "unexpected EOF, expected {expected} more bytes",
            "Consistency check failed: file should be of size {expected} but has size {found}",
            "It looks like the config file at '{path}' is not a valid JSON file",
            "File does not contain tensor {tensor}",
        ),
        samples=(
            "Error while deserializing header: HeaderTooSmall",
            "Error while deserializing header: incomplete metadata, file not fully covered",
            "PytorchStreamReader failed reading zip archive: failed finding central directory",
            "invalid load key, 'v'.",
            "pickle data was truncated",
            "unexpected EOF, expected 4194304 more bytes. The file might be corrupted.",
            "Consistency check failed: file should be of size 4976698672 but has size 1073741824",
            "It looks like the config file at '/models/m/config.json' is not a valid JSON file.",
            "File does not contain tensor model.layers.3.mlp.up_proj.weight",
        ),
        means="A file of the model is cut off, empty or something else than it is called.",
    ),
    Message(
        code="missing-key",
        emitter="Python",
        reads={"key": quoted},
        wordings=("KeyError: '{key}'",),
        samples=("KeyError: 'layers.0.mlp.experts.w2_weight'",),
        means="A name was looked up that is not there; inside weight loading it is the name of a tensor.",
    ),
    Message(
        code="shapes-differ",
        emitter="PyTorch, Python",
        reads={"left": count, "right": count, "dimension": count},
        wordings=(
            "The size of tensor a ({left}) must match the size of tensor b ({right}) at non-singleton dimension"
            " {dimension}",
            "The expanded size of the tensor ({left}) must match the existing size ({right}) at non-singleton dimension"
            " {dimension}",
        ),
        samples=(
            "The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 0",
            "The expanded size of the tensor (4096) must match the existing size (2048) at non-singleton dimension 1.",
        ),
        means="Two tensors have different sizes; inside weight loading one of them is the checkpoint's.",
    ),
    Message(
        code="bare-assertion",
        emitter="Python",
        whole_line=True,
        wordings=("AssertionError",),
        samples=("AssertionError",),
        means="An assertion without a text failed; inside a weight loader it compares shapes.",
    ),
    Message(
        code="weights-do-not-match",
        emitter="vLLM, PyTorch",
        fatal=True,
        reads={
            "name": quoted,
            "model": words,
            "loaded": words,
            "expected": words,
            "start": count,
            "length": count,
            "end": count,
            "names": line_rest,
        },
        wordings=(
            "There is no module or parameter named '{name}' in {model}",
            "Following weights were not initialized from checkpoint: {names}",
            "Attempted to load weight ({loaded}) into parameter ({expected})",
            "Tried to load weights of size {loaded} to a parameter of size {expected}",
            "Some weights are not initialized from checkpoints",
            "size mismatch for {name}: copying a param with shape",
            "start ({start}) + length ({length}) exceeds dimension size ({end})",
        ),
        samples=(
            "There is no module or parameter named 'lm_head.qweight' in LlamaForCausalLM",
            "Following weights were not initialized from checkpoint: {'lm_head.weight'}",
            "Attempted to load weight (torch.Size([32000, 4096])) into parameter (torch.Size([32064, 4096]))",
            "Tried to load weights of size torch.Size([1, 4096]) to a parameter of size torch.Size([4096])",
            "Some weights are not initialized from checkpoints: {'model.norm.weight'}",
            "size mismatch for lm_head.weight: copying a param with shape torch.Size([32000, 4096]) from checkpoint",
            "start (0) + length (4096) exceeds dimension size (2048).",
        ),
        means="Tensors of the checkpoint have other names or shapes than the model class expects.",
    ),
    Message(
        code="remote-code-refused",
        emitter="transformers, vLLM",
        fatal=True,
        reads={"model": _id},
        wordings=(
            "The repository ⟦for ⟧⟦`⟧{model}⟦`⟧ contains custom code which must be executed to"
            " correctly load the model",
            "Loading {model} requires you to execute the configuration file in that repo",
            "Loading this ⟨model|tokenizer⟩ requires you to execute",
            "Please pass the argument `trust_remote_code=True` to allow custom code to be run",
            "Failed to load the ⟨model config|tokenizer⟩. If the ⟨model|tokenizer⟩ is a custom ⟨model|tokenizer⟩"
            " not yet available in the HuggingFace transformers library, consider setting `trust_remote_code=True`",
        ),
        samples=(
            "The repository for org/custom-7b contains custom code which must be executed to correctly load the model.",
            "The repository /models/custom contains custom code which must be executed to correctly load the model.",
            "Loading /models/custom requires you to execute the configuration file in that repo on your local machine.",
            "Loading this tokenizer requires you to execute the tokenizer file in that repo on your local machine.",
            "Please pass the argument `trust_remote_code=True` to allow custom code to be run.",
            "Failed to load the model config. If the model is a custom model not yet available in the HuggingFace"
            " transformers library, consider setting `trust_remote_code=True` in LLM or using the"
            " `--trust-remote-code` flag in the CLI.",
        ),
        means="The model brings Python code of its own, and running it was not allowed.",
    ),
    Message(
        code="chat-template-absent",
        emitter="vLLM, transformers",
        anywhere=True,
        reads={"path": Reader("path", r"[^()]{1,300}", str, ("templates/x.jinja",))},
        wordings=(
            "The supplied chat template ⟦string ⟧({path}) ⟨appears path-like, but doesn't exist|looks like a file path,"
            " but it failed to be opened⟩",
            "As of transformers v4.44, default chat template is no longer allowed",
            "Cannot use chat template functions because tokenizer.chat_template is not set",
            "Cannot use apply_chat_template() because tokenizer.chat_template is not set",
        ),
        samples=(
            "The supplied chat template string (templates/tools.jinja) appears path-like, but doesn't exist!",
            "The supplied chat template (templates/tools.jinja) looks like a file path, but it failed to be opened.",
            "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template"
            " if the tokenizer does not define one.",
            "Cannot use chat template functions because tokenizer.chat_template is not set and no template argument was"
            " passed!",
            "Cannot use apply_chat_template() because tokenizer.chat_template is not set.",
        ),
        means="There is no chat template: the file named is not there, or the model brings none.",
    ),
    Message(
        code="architecture-refused",
        emitter="vLLM",
        seen="0.1.4 - 0.33.0",
        fatal=True,
        reads={
            "architectures": _archs,
            "architecture": _arch,
            "release": Reader("release", r"\d+\.\d+(?:\.\d+)?", str, ("0.10.0",)),
            "url": _url,
        },
        wordings=(
            "Model architectures {architectures} are not supported for now",
            "Model architecture {architecture} was supported in vLLM until ⟨version |v⟩{release}",
            "Model architecture {architecture} is not supported in-tree anymore",
            "{architecture} has no vLLM implementation and the Transformers implementation is not compatible",
            "Cannot find model module. '{architecture}' is not a registered model",
        ),
        samples=(
            "Model architectures ['BazForCausalLM'] are not supported for now. Supported architectures: dict_keys([",
            "Model architecture BazForCausalLM was supported in vLLM until v0.10.2, and is not supported anymore.",
            "Model architecture BazForCausalLM is not supported in-tree anymore. Please install the plugin at",
            "BazForCausalLM has no vLLM implementation and the Transformers implementation is not compatible with"
            " vLLM.",
            "Cannot find model module. 'BazForCausalLM' is not a registered model in the Transformers library",
        ),
        means="This release has no implementation of the model.",
    ),
    Message(
        code="architecture-inspection-failed",
        emitter="vLLM",
        seen="0.6.4 - 0.33.0",
        fatal=True,
        reads={"architectures": _archs},
        wordings=("Model architectures {architectures} failed to be inspected",),
        samples=(
            "Model architectures ['LlamaForCausalLM'] failed to be inspected. Please check the logs for more details.",
        ),
        means="Importing the model's implementation failed; the reason stands above.",
    ),
    Message(
        code="model-type-unknown",
        emitter="transformers",
        anywhere=True,
        fatal=True,
        reads={"model_type": _type, "name": quoted, "class": Reader("class", r"\w{1,80}", str, ("Qwen3Tokenizer",))},
        wordings=(
            "The checkpoint you are trying to load has model type `{model_type}` but Transformers does not recognize",
            "Tokenizer class {class}⟨ does not exist or is not currently imported⟩",
            "`rope_scaling` must be a dictionary with ⟦with ⟧two fields",
        ),
        samples=(
            "The checkpoint you are trying to load has model type `gemma4` but Transformers does not recognize this"
            " architecture.",
            "Tokenizer class Foo2Tokenizer does not exist or is not currently imported.",
            "`rope_scaling` must be a dictionary with with two fields, `type` and `factor`, got {'factor': 8.0}",
        ),
        means="The installed transformers does not know the model or its settings.",
    ),
    Message(
        code="transformers-name-gone",
        emitter="transformers 5, vLLM",
        fatal=True,
        reads={
            "class": Reader("class", r"\w{1,80}?", str, ("Qwen2Tokenizer",)),
            "config": Reader("config", r"\w{1,60}Config", str, ("Qwen3Config",)),
            "attribute": Reader("attribute", r"\w{2,60}(?=[.'\"]|$)", str, ("pad_token_type_id",)),
            "gone": phrases(
                "gone",
                "all_special_tokens_extended",
                "additional_special_tokens_ids",
                "batch_encode_plus",
                "prepare_for_model",
                "build_inputs_with_special_tokens",
            ),
            "moved": phrases("moved", "rope_theta", "rope_scaling"),
            "type": quoted,
        },
        wordings=(
            "TokenizersBackend has no attribute {attribute}",
            "{class} has no attribute {gone}",
            "'{class}' object has no attribute '{gone}'",
            "'{config}' object has no attribute '{moved}'",
            "'{type}' is already used by a Transformers config, pick another name",
        ),
        samples=(
            "TokenizersBackend has no attribute sanitize_special_tokens. Did you mean: 'special_tokens_map'?",
            "Qwen2Tokenizer has no attribute all_special_tokens_extended. Did you mean: 'num_special_tokens_to_add'?",
            "'LlamaTokenizer' object has no attribute 'batch_encode_plus'",
            "'Qwen3Config' object has no attribute 'rope_theta'",
            "'aimv2' is already used by a Transformers config, pick another name.",
        ),
        means="vLLM uses something that the installed transformers no longer has, or has now itself.",
    ),
)
