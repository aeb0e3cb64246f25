"""A policy as it is loaded from a folder."""

import json
import os
import resource
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from paths import REPOSITORY
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from halfway.curriculum import UserError
from halfway.trainers.learner.backend import save_policy
from halfway.trainers.model_folder import check_model_folder
from halfway.trainers.policy import ModelOptions, load_policy, load_tokenizer, prepare_torch

SUMS = REPOSITORY / "experiments" / "starting_models" / "sums"


@pytest.mark.parametrize("sampled", [False, True])
def test_a_model_can_be_saved_whatever_its_generation_settings(tmp_path: Path, sampled: bool) -> None:
    """transformers refuses to save a temperature without do_sample, which it has loaded with a warning."""
    settings: dict[str, Any] = {"temperature": 0.9, "top_p": 0.6, "eos_token_id": [1, 2], "do_sample": sampled}
    AutoModelForCausalLM.from_pretrained(SUMS).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(SUMS).save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(settings))
    policy = load_policy(ModelOptions(), str(tmp_path / "model"))
    save_policy(policy.model, tmp_path, True)
    saved = GenerationConfig.from_pretrained(tmp_path / "policy")
    assert saved.eos_token_id == policy.end_tokens and {1, 2} <= set(policy.end_tokens)
    assert saved.temperature == (0.9 if sampled else None)


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def describe_very_many_weights(folder: Path) -> None:
    header = b'{"a": [' + b"{}," * 4_000_000 + b"{}]}"
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


def claim_a_long_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2**63) + b"{}")


def set_in(name: str, **values: Any) -> Any:
    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | values))

    return change


def write(name: str, text: str) -> Any:
    return lambda folder: (folder / name).write_text(text)


def add_tokens(number: int) -> Any:
    def change(folder: Path) -> None:
        path = folder / "tokenizer.json"
        added = json.loads(path.read_text())["added_tokens"]
        set_in("tokenizer.json", added_tokens=[added[0] | {"id": 40, "content": f"<{i}>"} for i in range(number)])(
            folder
        )

    return change


def add_to_vocabulary(token: str, number: int) -> Any:
    def change(folder: Path) -> None:
        model = json.loads((folder / "tokenizer.json").read_text())["model"]
        set_in("tokenizer.json", model=model | {"vocab": model["vocab"] | {token: number}})(folder)

    return change


def wrap(times: int) -> dict[str, Any]:
    """A post_processor that puts 1,000 tokens in front of a text, so many times."""
    special = {"id": "x", "ids": [1] * 1000, "tokens": ["x"] * 1000}
    single = [{"SpecialToken": {"id": "x", "type_id": 0}}] * times + [{"Sequence": {"id": "A", "type_id": 0}}]
    return {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {"x": special}}


def sequence(number: int) -> dict[str, Any]:
    """A normalizer that doubles every a as often."""
    double = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return {"type": "Sequence", "normalizers": [double] * number}


def leave_out(weight: str) -> Any:
    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        del weights[weight]
        save_file(weights, folder / "model.safetensors", {"format": "pt"})

    return change


@pytest.mark.parametrize(
    ("change", "file", "words"),
    [
        (cut, "model.safetensors", "header says"),
        (claim_a_long_header, "model.safetensors", "ends within its header"),
        (write("model.safetensors", ""), "model.safetensors", "within its header"),
        (describe_very_many_weights, "model.safetensors", "holds more than 4,000,000 values"),
        (write("config.json", "[]"), "config.json", "not a JSON object"),
        (write("config.json", "[" * 100_000), "config.json", "damaged"),
        (write("tokenizer.json", "{"), "tokenizer.json", "damaged"),
        (write("tokenizer_config.json", "[]"), "tokenizer_config.json", "not a JSON object"),
        (set_in("config.json", num_hidden_layers=10**7), "config.json", "at most"),
        (set_in("config.json", n_layer=10**7), "config.json", "n_layer: must be at most 1000"),
        (set_in("config.json", text_config={"num_layers": 10**7}), "config.json", "num_layers: must be at most 1000"),
        (
            set_in("config.json", attention_types=[[["global"], 10**9]]),
            "config.json",
            "attention_types: must be at most",
        ),
        (set_in("config.json", num_labels=10**8), "config.json", "num_labels: must be at most 20000"),
        (set_in("config.json", vocab_size=10**10), "config.json", "at most"),
        (set_in("config.json", vocab_size=10**9), "config.json", "describes 96,000,332,"),
        (set_in("config.json", hidden_size=10**5), "config.json", "weights, and the folder's files have"),
        (set_in("config.json", num_attention_heads=10**4), "config.json", "weights, and the folder's files have"),
        (set_in("config.json", head_dim=10**6), "config.json", "weights, and the folder's files have"),
        (set_in("config.json", eos_token_id=[1] * 10**5), "config.json", "list of tokens"),
        (
            set_in("tokenizer.json", normalizer={"type": "Prepend", "prepend": "a" * 10**6}),
            "tokenizer.json",
            "replaces",
        ),
        (set_in("tokenizer.json", normalizer=sequence(26)), "tokenizer.json", "replaces"),
        (
            set_in("tokenizer.json", added_tokens=[{"id": 2**31, "content": "z"}]),
            "tokenizer.json",
            "a token 2147483648",
        ),
        (add_tokens(70_001), "tokenizer.json", "adds 70,001 tokens"),
        (
            set_in("tokenizer_config.json", extra_special_tokens=["a"] * 10_001),
            "tokenizer_config.json",
            "lists too many tokens; keep at most 10,000",
        ),
        (
            set_in("special_tokens_map.json", additional_special_tokens=["a"] * 10_001),
            "special_tokens_map.json",
            "too many tokens",
        ),
        (set_in("added_tokens.json", **{f"<{i}>": i for i in range(70_001)}), "added_tokens.json", "too many tokens"),
        (add_to_vocabulary("z", 43), "model.path", "its tokenizer has a token 43, and its model 43 embeddings"),
        (set_in("tokenizer_config.json", tokenizer_class="CanineTokenizer"), "model.path", "has 1,114,112 tokens"),
        (write("vocab.json", "," * 1_000_001), "vocab.json", "more than 1,000,000 entries"),
        (write("vocab.txt", "\n" * 1_000_001), "vocab.txt", "more than 1,000,000 entries"),
        (write("merges.txt", "a b\n" * 1_000_001), "merges.txt", "more than 1,000,000 entries"),
        (write("tokenizer.model", "x" * (1 + (16 << 20))), "tokenizer.model", "holds more than 16 MiB"),
        (write("chat_template.jinja", "x" * (1 + (16 << 20))), "chat_template.jinja", "holds more than 16 MiB"),
        (set_in("tokenizer.json", post_processor=wrap(1)), "tokenizer.json", "post_processor"),
        (set_in("tokenizer.json", added_tokens=[{"id": "a"}]), "tokenizer.json", "damaged"),
        (set_in("tokenizer.json", model=[]), "tokenizer.json", "damaged"),
        (set_in("config.json", num_attention_heads=0), "model.path", "cannot be loaded"),
        (set_in("config.json", hidden_size="x"), "model.path", "cannot be loaded"),
        (set_in("generation_config.json", eos_token_id="x"), "generation_config.json", "list of tokens"),
        (set_in("generation_config.json", eos_token_id={"a": 1}), "generation_config.json", "list of tokens"),
        (set_in("generation_config.json", eos_token_id=["a", None]), "generation_config.json", "list of tokens"),
        (
            set_in("model.safetensors.index.json", weight_map={"a": "../other/model.safetensors"}),
            "model.safetensors.index.json",
            "files of the folder",
        ),
        (
            set_in("model.safetensors.index.json", weight_map={"a": "pytorch_model.bin"}),
            "model.safetensors.index.json",
            "files of the folder",
        ),
        (set_in("model.safetensors.index.json", weight_map={"a": "b.safetensors"}), "b.safetensors", "missing"),
        (set_in("adapter_config.json", base_model_name_or_path="owner/other"), "adapter_config.json", "merge"),
        (
            set_in("tokenizer.json", normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
            "model.path",
            "charsmap",
        ),
        (
            set_in("tokenizer.json", decoder={"type": "Strip", "content": "1", "start": 0, "stop": 100}),
            "model.path",
            "out of bounds",
        ),
        (leave_out("model.norm.weight"), "model.path", "lacks weights of Qwen3ForCausalLM: model.norm.weight"),
    ],
)
def test_a_damaged_or_strange_folder_costs_one_line(tmp_path: Path, change: Any, file: str, words: str) -> None:
    shutil.copytree(SUMS, tmp_path / "model")
    change(tmp_path / "model")
    with pytest.raises(UserError) as caught:
        load_policy(ModelOptions(), str(tmp_path / "model"))
    message = str(caught.value)
    assert file in message and words in message and "\n" not in message


@pytest.mark.parametrize("kind", ["gemma3n_text", "gemma4_text", "doge", "gpt_oss", "qwen3_moe", "gpt_neo"])
def test_what_real_models_count_is_allowed(tmp_path: Path, kind: str) -> None:
    """Gemma has `vocab_size_per_layer_input`, and Doge 16,384 experts."""
    (tmp_path / "config.json").write_text(AutoConfig.for_model(kind).to_json_string(use_diff=False))
    check_model_folder(tmp_path)


def test_a_model_of_mistral_keeps_its_tokenizer_and_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a package of vLLM's, `transformers` reads tekken.json instead of tokenizer.json unless it gets this option,
    and finds no template then."""
    seen, read = [], AutoTokenizer.from_pretrained
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *a, **options: seen.append(options) or read(*a))
    load_tokenizer(SUMS)
    assert "fix_mistral_regex" in seen[0]


def test_a_mask_of_all_positions_counts_as_weights(tmp_path: Path) -> None:
    """Each layer of GPT-Neo has one."""
    shutil.copytree(SUMS, tmp_path / "model")
    few = {"num_layers": 3, "num_heads": 1, "hidden_size": 4, "intermediate_size": 4}
    kinds = [[["global"], 3]]
    set_in("config.json", model_type="gpt_neo", attention_types=kinds, max_position_embeddings=10**5, **few)(
        tmp_path / "model"
    )
    with pytest.raises(UserError, match="describes 30,00"):
        load_policy(ModelOptions(attn_implementation="eager"), str(tmp_path / "model"))


def test_a_model_on_a_hub_is_checked_as_one_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no network: the model is in the cache."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    kept, commit = tmp_path / "models--owner--name", "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(SUMS, kept / "snapshots" / commit)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(commit)
    assert load_policy(ModelOptions(path="owner/name"), "owner/name").path == "owner/name"
    set_in("config.json", num_hidden_layers=10**7)(kept / "snapshots" / commit)
    with pytest.raises(UserError, match=r"config.json: num_hidden_layers: must be at most 1000"):
        load_policy(ModelOptions(path="owner/name"), "owner/name")
    (kept / "refs" / "main").unlink()
    os.mkfifo(kept / "refs" / "main")
    with pytest.raises(UserError, match=r"refs/main: is not a regular file"):
        load_policy(ModelOptions(path="owner/name"), "owner/name")
    with pytest.raises(
        UserError, match=r"\Amodel.path: 'owner/other' cannot be loaded \(LocalEntryNotFoundError[^\n]*\Z"
    ):
        load_policy(ModelOptions(path="owner/other"), "owner/other")


def test_a_policy_loads_without_scikit_learn_which_others_still_find() -> None:
    script = (
        "import sys; from halfway.trainers.policy import ModelOptions, load_policy;"
        f"load_policy(ModelOptions(), {str(REPOSITORY / 'experiments/starting_models/sums')!r});"
        "from transformers.utils import is_sklearn_available;"
        "import importlib.util as found;"
        "assert 'sklearn' not in sys.modules;"
        "assert is_sklearn_available() == (found.find_spec('sklearn') is not None)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("name", ["_attn_implementation", "attn_implementation"])
@pytest.mark.parametrize("kernel", ["owner/kernel", "flash_attention_2"])
def test_a_model_chooses_no_kernel_from_a_hub(tmp_path: Path, name: str, kernel: str) -> None:
    """transformers gives the name in the configuration precedence, and a package loads it as code."""
    shutil.copytree(SUMS, tmp_path / "model")
    set_in("config.json", **{name: kernel})(tmp_path / "model")
    policy = load_policy(ModelOptions(attn_implementation="eager"), str(tmp_path / "model"))
    assert policy.model.config._attn_implementation == "eager"


def test_padding_has_an_embedding(tmp_path: Path) -> None:
    """A token that the tokenizer adds for padding often has none."""
    shutil.copytree(SUMS, tmp_path / "model")
    set_in("tokenizer_config.json", pad_token="<added>")(tmp_path / "model")
    policy = load_policy(ModelOptions(), str(tmp_path / "model"))
    assert policy.tokenizer.pad_token_id == policy.model.get_input_embeddings().num_embeddings  # type: ignore[attr-defined]
    assert policy.padding == policy.end_tokens[0]


@pytest.mark.skipif(sys.platform != "linux" or torch.cuda.is_available(), reason="glibc's setting, on a CPU")
def test_a_run_keeps_the_memory_that_it_frees() -> None:
    """Otherwise each of a step's large tensors costs a page fault for every 4 KiB."""

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(2**24)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    def refilled() -> bool:
        prepare_torch(0, 0)
        return min(faults() for _ in range(6)) < 100  # the first ones may take blocks that the parent had freed

    child = os.fork()
    if not child:
        os._exit(0 if refilled() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
