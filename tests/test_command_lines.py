"""Every command line of the documents and of ``deploy`` is one that the real command understands.

Whole lines in blocks are parsed by the command line itself, values included; ``whim …`` within a
sentence must name verbs and options that exist. Nothing is run: ``tests/test_shell_blocks.py``
does that for what can be run.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import whim
from tests.documents import BLOCK
from tests.shell_pages import commands
from whim.cli.app import app
from whim.serve.settings import load

ROOT = Path(__file__).parent.parent
UsageError: Any = typer.BadParameter.__mro__[1]  # of the click that typer brings
COMMAND: Any = typer.main.get_command(app)
PAGES = sorted(
    path for where in ("*.md", "docs/**/*.md", "benchmarks/*.md", "examples/*.md")
    for path in ROOT.glob(where) if path.name != "CHANGELOG.md"
)  # fmt: skip
RECIPES = [ROOT / "deploy" / name for name in ("Dockerfile", "systemd/whim.service")]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
_LEAVES = {"exec", "do", "then", "until", "while", "!"}  # words before a command


def simple_commands(text: str) -> Iterator[list[str]]:
    """The commands of a line, without assignments before them: ``A=b x && y`` has x and y."""
    plain = re.sub(r"\$\w+", "1", text.replace("\\\n", " "))  # a variable of a loop
    words = shlex.shlex(plain, posix=True, punctuation_chars=";&|()<>")
    words.whitespace_split = True
    command: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= set(";&|()"):
            while command and (command[0] in _LEAVES or re.match(r"\w+=", command[0])):
                command.pop(0)
            if command:
                yield command
            command = []
        else:
            command.append(word)


def parse(words: list[str]) -> None:
    """Have the command line parse a whole command, without running it."""
    with COMMAND.make_context("whim", list(words), resilient_parsing=False) as context:
        group = COMMAND
        left = [*context._protected_args, *context.args]
        while hasattr(group, "commands") and left:
            name, group, left = group.resolve_command(context, left)
            context = group.make_context(name, left, parent=context)
            left = [*getattr(context, "_protected_args", []), *context.args]


def exists(words: list[str]) -> None:
    """Check the verbs and the options of a command that may be incomplete."""
    here = COMMAND
    for word in words:
        if word.startswith("-"):
            verbs = [here, *getattr(here, "commands", {}).values()]  # `whim keys --store`: of any
            known = {"--help"} | {
                name
                for verb in verbs
                for one in verb.params
                for name in (*one.opts, *one.secondary_opts)
            }
            assert word.split("=")[0] in known, f"{word} is no option of {' '.join(words)}"
        elif hasattr(here, "commands") and not word.isupper() and word != "…":
            assert word in here.commands, f"{word} is no verb, in {' '.join(words)}"
            here = here.commands[word]


def policies_exist(words: list[str]) -> None:
    for flag, spec in itertools.pairwise(words):
        if flag == "--policy":
            assert spec.split(":")[0].split("=")[-1] in whim.POLICIES, spec
    if words[:1] == ["warm"]:
        for spec in words[1:]:
            assert spec.startswith("-") or spec.split(":")[0] in whim.POLICIES, spec


def check(words: list[str]) -> None:
    """One command: of whim, of this repository, or of pip."""
    name, *rest = words
    if Path(name).name == "whim":
        parse(rest)
        policies_exist(rest)
    elif Path(name).name in ("python", "python3") and rest[:1] == ["-m"]:
        if rest[1].split(".")[0] in ("benchmarks", "tests", "whim"):
            assert importlib.util.find_spec(rest[1]) is not None, rest[1]
    elif Path(name).name in ("python", "python3") and rest[0].endswith(".py"):
        assert (ROOT / rest[0]).is_file() or rest[0] == "my_script.py", rest[0]
    elif Path(name).name == "pip" and rest[:1] == ["install"]:
        for extras in re.findall(r"(?:whim-bandits|\.)\[([\w,]+)\]", " ".join(rest)):
            assert set(extras.split(",")) <= set(EXTRAS), extras
    elif name == "make":
        asked = {word for word in rest if re.fullmatch(r"[\w-]+", word)}
        assert asked <= TARGETS, asked - TARGETS


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_command_lines_of_pages(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WHIM_DATA", "WHIM_STORE", "WHIM_CONFIG", "WHIM_KEY"):
        monkeypatch.delenv(name, raising=False)
    text = path.read_text("utf-8")
    for command in commands(text):
        for words in simple_commands(command.text.partition("  #")[0]):
            check(words)
    sentences = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    for inline in re.findall(r"`(?:\$ )?whim ([^`]+)`", sentences):
        exists([word for word in inline.replace("'", "").split() if word != "…"])


def test_the_check_finds_what_does_not_exist() -> None:
    for line in (
        "whim replay x.whim --polcy random", "whim serve --port many", "whim convert x.csv",
        "whim spaces make shop", "A=b whim sevre && ls", "make everything", "whim warm nothing",
        "pip install 'whim-bandits[everything]'", "python -m benchmarks.nothing",
    ):  # fmt: skip
        with pytest.raises((typer.BadParameter, UsageError, AssertionError)):
            check(next(simple_commands(line)))
    for line in (["replay", "--polcy"], ["sevre"], ["spaces", "make"]):
        with pytest.raises(AssertionError):
            exists(line)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_of_pages_load(path: Path, tmp_path: Path) -> None:
    for kind, source in BLOCK.findall(path.read_text("utf-8")):
        if kind == "toml" and not source.startswith("["):
            (tmp_path / "whim.toml").write_text(source, "utf-8")
            settings = load(tmp_path / "whim.toml", environment={})
            for name, value in tomllib.loads(source).items():
                assert name in settings.__struct_fields__
                assert isinstance(value, list) or getattr(settings, name) == value


@pytest.mark.parametrize(
    "text",
    [
        *(
            source
            for path in PAGES
            for kind, source in BLOCK.findall(path.read_text("utf-8"))
            if kind == "dockerfile"
        ),
        *(path.read_text("utf-8") for path in RECIPES),
    ],
)
def test_recipes_name_commands_that_exist(text: str) -> None:
    plain = text.replace("\\\n", " ")
    lines = re.findall(r"^(?:RUN |ExecStart=|#   )(.*)", plain, re.M)
    lines += [shlex.join(json.loads(one)) for one in re.findall(r"^CMD (\[.*\])", plain, re.M)]
    found = [words for line in lines for words in simple_commands(line)]
    for words in found:
        check(words)
    assert any(Path(words[0]).name == "whim" for words in found), "a recipe runs whim"
