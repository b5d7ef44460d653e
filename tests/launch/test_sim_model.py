"""The built-in model is what its script writes, and its tokenizer suits a benchmark."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from sendnn_bench import models

ROOT = Path(__file__).parents[2]
DIRECTORY = Path(models.resolve("sim-granite-8b"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DIRECTORY / "tokenizer.json"))


def test_the_script_writes_the_committed_files_byte_for_byte(tmp_path):
    script = ROOT / "scripts" / "make_sim_model.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True, timeout=60)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in DIRECTORY.iterdir()}


def test_every_id_of_the_shape_has_a_token(tokenizer):
    shape = json.loads((DIRECTORY / "config.json").read_text())
    assert shape["vocab_size"] == tokenizer.get_vocab_size() == 49_159
    assert tokenizer.token_to_id("<|end_of_text|>") == shape["eos_token_id"]


def test_every_token_but_lone_bytes_decodes_to_complete_text(tokenizer):
    broken = [i for i in range(49_152) if "\ufffd" in tokenizer.decode([i])]
    lone_bytes = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(0x80, 0x100)]
    assert broken == [*lone_bytes, tokenizer.token_to_id("\ufffd")]


def test_words_survive_decoding_and_encoding_one_for_one(tokenizer):
    ids = list(range(tokenizer.token_to_id("▁the"), tokenizer.token_to_id("ed")))
    assert len(ids) > 48_000
    assert tokenizer.encode(tokenizer.decode(ids)).ids == ids


def test_lone_bytes_keep_their_number(tokenizer):
    pieces = ("▁the", "<0xE6>", "<0x80>", "<0xFF>", "▁of")
    ids = [tokenizer.token_to_id(piece) for piece in pieces]
    assert len(tokenizer.encode(tokenizer.decode(ids)).ids) == len(ids)


@pytest.mark.parametrize(
    "text",
    ["Hello, world!", "two  spaces\n\nand lines", "日本語 and é", "a", "snake_case(x) = {1: 2}"],
)
def test_any_text_comes_back_unchanged(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_resolve_leaves_other_names_alone():
    assert models.resolve("ibm-granite/granite-3.3-8b-instruct") == (
        "ibm-granite/granite-3.3-8b-instruct"
    )
    assert Path(models.resolve("sim-granite-8b")).is_absolute()
