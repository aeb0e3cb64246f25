"""Fixtures of several test files: a tiny random language model with its tokenizer, a finished study, cheap commands."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from paths import IMPORTABLE
from skipped import skipped_line

if TYPE_CHECKING:
    from preloaded import Preloaded
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

# One thread for torch, here and in the processes that tests start. torch is imported by the fixtures that need it:
# the tests in tests/lint run without it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # a second thread that waits would take a core from other tests
# Tests send Ctrl-C, which a background job of a script ignores, and so would all that it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# How long an example takes depends on how busy the machine is and on what it imports first.
settings.register_profile("timeless", deadline=None)
settings.load_profile("timeless")

CHARACTERS = "0123456789abcdefghijklmnop+-=;.# \n@>:!|?"


@pytest.fixture(scope="session")
def tiny_tokenizer() -> "PreTrainedTokenizerFast":
    """One token per character; 0 is <pad>, 1 is <end>."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate(["<pad>", "<end>", "<unk>", *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="<unk>")


@pytest.fixture
def tiny_model(tiny_tokenizer: "PreTrainedTokenizerFast") -> "Qwen3ForCausalLM":
    """Random weights, large enough that the next token depends on all of the context."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tiny_tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        initializer_range=0.3,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    return Qwen3ForCausalLM(config).eval()


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny PROPEL study with every stage done, for seed 0. Tests work on copies."""
    from propel_study import finish, tiny

    from halfway.experiments.propel.study import Study

    config = tiny(tmp_path_factory.mktemp("finished"))
    finish(Study(config, 0))
    return config.folder


@pytest.fixture(scope="session")
def preloaded() -> Iterator["Preloaded"]:
    """Runs commands of `halfway` in forks of one process."""
    from preloaded import preloaded_process

    with preloaded_process() as process:
        yield process


def pytest_configure(config: pytest.Config) -> None:
    """Give this session and all its processes one cache, with the usual caches of other programs."""
    if hasattr(config, "workerinput"):
        return
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(mkdtemp(prefix="halfway-tests-"))
    for each in usual.iterdir() if usual.is_dir() else ():
        if each.name != "halfway":
            (folder / each.name).symlink_to(each)
    os.environ["XDG_CACHE_HOME"] = str(folder)
    if config.getoption("markexpr") == "engines":
        os.environ["PYTHONPATH"] = IMPORTABLE  # vLLM's processes start with `sitecustomize`
    config.add_cleanup(lambda: rmtree(folder, ignore_errors=True))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Say what was skipped in the last line, after pytest's own."""
    yield
    terminal: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:  # a worker has none
        reports = terminal.stats.get("skipped", [])
        line = skipped_line(report.longrepr[2] for report in reports)
        if line:
            terminal.write_line(line)
