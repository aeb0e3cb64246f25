"""A loaded policy: the model with its tokenizer, its end tokens, and the wrapping of prompts."""

import ctypes
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from halfway.curriculum import UserError, require
from halfway.curriculum.environments.contract import Environment
from halfway.curriculum.support.extras import blaming, clean
from halfway.curriculum.tasks.hub import check_cache
from halfway.trainers.engines.contract import Engine, EngineSetup
from halfway.trainers.learner.learner_options import LoraOptions
from halfway.trainers.model_folder import MOST_TOKENS, catching_panics, check_model_folder
from halfway.trainers.rollouts.attempts import Replays
from halfway.trainers.rollouts.chat import Tokenizer
from halfway.trainers.rollouts.collector import Collector
from halfway.trainers.rollouts.rollout_options import RolloutOptions

# Options of glibc's mallopt.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES = 2**30

STYLE = re.compile("\x1b\\[[0-9;]*m")
"""What makes letters of a terminal bold or coloured."""


@dataclass(frozen=True)
class ModelOptions:
    """The policy to start from.

    Attributes:
        path: a folder with a Hugging Face checkpoint and its tokenizer (relative to the YAML file, the current folder
            or the repository), or a name on a model hub.
        dtype: type of weights and activations. bfloat16 is for DeepSpeed and adapters, which keep a float32 copy.
        attn_implementation: attention kernel, by its name in `transformers`.
        lora: adapters to train instead of the weights.
        chat: prompts to render with the tokenizer's chat template: "messages" = lists of messages (a lone user message
            stays plain text if there is no template); "all" = plain prompts too, each as one user message.
        system: a system message for conversations that have none; empty = the template's default.
    """

    path: str = "experiments/starting_models/sums"
    dtype: Literal["float32", "bfloat16"] = "float32"
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    lora: LoraOptions = field(default_factory=LoraOptions)
    chat: Literal["messages", "all"] = "messages"
    system: str = ""


@dataclass(frozen=True)
class Policy:
    """A model with its tokenizer and settings.

    Attributes:
        model: a causal language model of `transformers`.
        end_tokens: every token that ends a response.
        padding: any valid token.
        path: source of its weights.
        chat, system: see `wrap` and `system` of `halfway.trainers.rollouts.chat.Prompts`.
        policy_version: number of learner updates behind these weights: 0 as first loaded, or the checkpoint's number.
    """

    model: Any
    tokenizer: Tokenizer
    end_tokens: list[int]
    padding: int
    path: str
    chat: bool
    system: str
    policy_version: int = 0

    def engine_setup(self, options: RolloutOptions, model: Any = None) -> EngineSetup:
        """The setup of an engine that samples from `model`, or from the policy's own model."""
        return EngineSetup(
            self.model if model is None else model,
            self.path,
            self.end_tokens,
            self.padding,
            options.temperature,
            options.max_sequences,
            self.policy_version,
            options.in_flight,
            options.workers == "ray",
        )

    def collector(
        self,
        engine: Engine,
        environment: Environment[Any],
        max_response_tokens: int,
        max_context_tokens: int = 0,
        max_diverged: float = 1.0,
        max_seconds: float = 0.0,
    ) -> Collector:
        """Make a collector that rolls out requests with the policy's prompts."""
        return Collector(
            engine,
            environment,
            self.tokenizer,
            max_response_tokens,
            chat=self.chat,
            system=self.system,
            max_context_tokens=max_context_tokens,
            replays=Replays(max_diverged),
            max_seconds=max_seconds,
            end_tokens=tuple(self.end_tokens),
        )


WEIGHTS_PER_BYTE = 16
"""More than quantized weights have."""
HUB_FILES = ["*.json", "*.txt", "*.model", "*.jinja", "model*.safetensors"]
"""What a model on a hub has for `transformers`, without weights in other formats."""


def leave_sklearn_out() -> None:
    """Import generation in `transformers` without scikit-learn, which imports SciPy and pandas.

    Only one kind of assisted decoding, unused here, needs scikit-learn, and it takes a quarter of a run's start.
    """
    utils, decoding = import_module("transformers.utils"), "transformers.generation.candidate_generator"
    if decoding in sys.modules or "sklearn" in sys.modules:
        return
    there = utils.is_sklearn_available
    vars(utils)["is_sklearn_available"] = lambda: False
    try:
        import_module(decoding)
    finally:
        vars(utils)["is_sklearn_available"] = there


def clean_messages() -> None:
    """Keep what could control a terminal out of messages of `transformers`, which quote a model's files."""
    import_module("transformers.utils.logging").get_logger()  # makes the handler
    for handler in logging.getLogger("transformers").handlers:
        handler.addFilter(_clean)


def _clean(record: logging.LogRecord) -> bool:
    lines = STYLE.sub("", record.getMessage()).splitlines()
    record.msg, record.args = "\n".join(map(clean, lines)), ()
    return True


def load_policy(options: ModelOptions, path: str) -> Policy:
    """Load the policy without the adapters named in its options.

    Never runs code or a pickle of the model's folder: a model that needs its own code is refused, and weights are read
    from safetensors only.

    Args:
        path: what `options.path` resolves to: a folder, or a name on a hub.

    Raises:
        UserError: if the model cannot be loaded, or has no end token, so that no response would ever end.
    """
    import torch

    leave_sklearn_out()
    clean_messages()
    from transformers import AutoConfig, AutoModelForCausalLM

    # Its progress bars, for loading and for every checkpoint, would break the run's own.
    import_module("transformers.utils.logging").disable_progress_bar()
    with _loading(options.path):
        folder = _download(path)
        tokenizer = _load_tokenizer(folder, options.path)
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        use_own_kernels(config, options.attn_implementation)
        loader: Any = AutoModelForCausalLM
        require_weight_files(config, folder)
        model, report = loader.from_pretrained(
            folder,
            config=config,
            dtype=getattr(torch, options.dtype),
            attn_implementation=options.attn_implementation,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    require_whole(model, sorted(report["missing_keys"]), options.path)
    require_embeddings(tokenizer, model, options.path)
    ends = find_end_tokens(tokenizer, model)
    rows = model.get_input_embeddings().num_embeddings
    padding = next((token for token in (tokenizer.pad_token_id, *ends) if token is not None and token < rows), 0)
    make_savable(model, ends, padding)
    return Policy(model, tokenizer, ends, padding, path, options.chat == "all", options.system)


def load_tokenizer(folder: Path) -> Any:
    """Load a model's tokenizer, after a check of the folder. Raises UserError if it cannot be loaded."""
    clean_messages()
    with _loading(str(folder)):
        return _load_tokenizer(folder, str(folder))


def _load_tokenizer(folder: Path, path: str) -> Any:
    from transformers import AutoTokenizer

    check_model_folder(folder)
    # With vLLM's packages, transformers would prefer Mistral's own file, which has no chat template.
    own: dict[str, Any] = {"fix_mistral_regex": None} if (folder / "tokenizer.json").exists() else {}
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, **own)
    require(len(tokenizer) <= MOST_TOKENS, "model.path", path, f"its tokenizer has {len(tokenizer):,} tokens")
    require_vocabulary(tokenizer, path)
    tokenizer.encode("1")  # reads settings that nothing has checked yet
    tokenizer.decode(sorted(tokenizer.get_vocab().values()))  # no response has a token that breaks the decoder
    return tokenizer


@contextmanager
def _loading(path: str) -> Iterator[None]:
    what = f"model.path: {path!r} cannot be loaded"
    # The libraries that read the folder may raise anything.
    with blaming(what, "give a folder saved by transformers", Exception), catching_panics():
        yield


def _download(path: str) -> Path:
    """A model's folder: its own, or that of the copy in the cache of a hub, made now if it is missing or old."""
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import snapshot_download

    check_cache("models", path)
    return Path(snapshot_download(path, allow_patterns=HUB_FILES, ignore_patterns=["*/*"]))


def require_weight_files(config: Any, folder: Path) -> None:
    """Check that a folder has about as many weights as its configuration describes, before memory is allocated.

    Raises:
        UserError: if it has no weights, or far fewer.
    """
    import torch
    from transformers import AutoModelForCausalLM

    maker: Any = AutoModelForCausalLM
    with torch.device("meta"):
        empty = maker.from_config(config)
    described = sum(each.numel() for each in (*empty.parameters(), *empty.buffers()))
    files = list(folder.glob("*.safetensors"))
    if not files:
        raise UserError(
            f"model.path: {str(folder)!r} cannot be loaded: it has no .safetensors file; save the model in that format"
        )
    held = sum(file.stat().st_size for file in files)
    if described > WEIGHTS_PER_BYTE * held:
        raise UserError(
            f"{folder / 'config.json'}: describes {described:,} weights, and the folder's files have {held:,} bytes; "
            "copy or download the model again"
        )


def use_own_kernels(config: Any, attention: str) -> None:
    """Set the attention kernel in a model's configuration and its parts, and drop others that it names.

    A name such as owner/kernel there overrides the argument of `from_pretrained`, and means code on a hub.
    """
    config._attn_implementation = attention
    if hasattr(config, "_experts_implementation"):
        config._experts_implementation = None
    for part in vars(config).values():
        if hasattr(part, "_attn_implementation"):
            use_own_kernels(part, attention)


def require_whole(model: Any, missing: list[str], path: str) -> None:
    """Raise UserError for missing weights, which `transformers` would draw at random."""
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(
            f"model.path: {path!r} lacks weights of {type(model).__name__}: {missing[0]}{more}; "
            "copy or download the model again"
        )


def require_vocabulary(tokenizer: Any, path: str) -> None:
    """Raise UserError for the tokenizer that `transformers` makes if a folder has none: it has only special tokens, and
    encodes every text as nothing."""
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise UserError(
            f"model.path: {path!r} holds no tokenizer; save that of the model there with "
            "AutoTokenizer.from_pretrained(MODEL).save_pretrained(FOLDER)"
        )


def require_embeddings(tokenizer: Any, model: Any, path: str) -> None:
    """Raise UserError if the model has no embedding for a token of the vocabulary. Added tokens are often unused."""
    added, rows = tokenizer.get_added_vocab(), model.get_input_embeddings().num_embeddings
    last = max((number for token, number in tokenizer.get_vocab().items() if token not in added), default=0)
    require(last < rows, "model.path", path, f"its tokenizer has a token {last}, and its model {rows} embeddings")


def find_end_tokens(tokenizer: Any, model: Any) -> list[int]:
    """Find every token that ends a response, according to the tokenizer and the model's generation settings.

    Raises:
        UserError: if there is none, so that no response would ever end.
    """
    declared = model.generation_config.eos_token_id if model.generation_config else None
    several = declared if isinstance(declared, list) else [declared]
    tokens = sorted({token for token in (tokenizer.eos_token_id, *several) if token is not None})
    if not tokens:
        raise UserError("model.path: neither tokenizer nor model names an end token; set eos_token in the tokenizer")
    return tokens


def make_savable(model: Any, ends: list[int], padding: int) -> None:
    """Keep only the tokens in generation settings: `transformers` loads some others with a warning and refuses to save
    them, such as a temperature without do_sample. Sampling uses the engine's settings, never these."""
    settings = model.generation_config
    try:
        if settings:
            settings.validate(strict=True)
    except ValueError:
        tokens = {"bos_token_id": settings.bos_token_id, "eos_token_id": ends, "pad_token_id": padding}
        model.generation_config = type(settings)(**tokens)


def prepare_torch(seed: int, threads: int) -> None:
    """Make torch deterministic: the same seed, threads (0 = torch's choice) and machine give the same bits."""
    import torch

    # cuBLAS reads this once, at its first call; without it, its results may differ between equal calls.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
    # Otherwise an extra kernel fills every new tensor with NaN first.
    deterministic: Any = torch.utils.deterministic
    deterministic.fill_uninitialized_memory = False
    if threads:
        torch.set_num_threads(threads)
    if not torch.cuda.is_available():
        _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Have glibc keep blocks of up to 1 GiB when they are freed: every step of a CPU asks for them again.

    By default it returns them to the system, which fills each fresh page with zeros at its first use.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            mallopt(option, KEPT_BYTES)
