"""Write the built-in simulated model `sim-granite-8b`: shape, tokenizer and chat template.

    python scripts/make_sim_model.py [DIRECTORY]

The shape is the published one of Granite 3.3 8B; nothing else of that model is in it. The
vocabulary is spelt out by rule, so that the same files come out everywhere, and it is made for
benchmarks: nearly every id is a whole word with its leading space, so that random ids survive
decoding and encoding one for one, and every mocked token decodes to complete UTF-8 at once.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

DEFAULT_DIRECTORY = Path(__file__).parents[1] / "sendnn_bench" / "models" / "sim-granite-8b"

WORD_IDS = 49_152
"""Ids of the vocabulary proper; the role marks follow, to 49,159 in all as in Granite 3.3."""

END = "<|end_of_text|>"
MARKS = (
    "<|start_of_role|>",
    "<|end_of_role|>",
    "<|tool_call|>",
    "<|start_of_cite|>",
    "<|end_of_cite|>",
    "<|start_of_plugin|>",
    "<|end_of_plugin|>",
)
SPACE = "▁"

SHAPE: dict[str, Any] = {
    "architectures": ["GraniteForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "attention_multiplier": 0.0078125,
    "bos_token_id": 0,
    "embedding_multiplier": 12.0,
    "eos_token_id": 0,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 12800,
    "logits_scaling": 16.0,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "granite",
    "num_attention_heads": 32,
    "num_hidden_layers": 40,
    "num_key_value_heads": 8,
    "pad_token_id": 0,
    "residual_multiplier": 0.22,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": WORD_IDS + len(MARKS),
}

GENERATION = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}

TOKENIZER_CONFIG = {
    "add_bos_token": False,
    "bos_token": END,
    "clean_up_tokenization_spaces": False,
    "eos_token": END,
    "model_max_length": 131072,
    "pad_token": END,
    "tokenizer_class": "PreTrainedTokenizerFast",
}

CHAT_TEMPLATE = """\
{%- if tools %}
    {{- '<|start_of_role|>available_tools<|end_of_role|>' + (tools | tojson) + '<|end_of_text|>' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' }}
    {{- (message['content'] or '') + '<|end_of_text|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_of_role|>assistant<|end_of_role|>' }}
{%- endif %}
"""

COMMON_TEXT = """
the of and to a in is it you that he was for on are with as I his they be at one have this from or
had by not but what some we can out other were all there when up use your how said an each she
which do their time if will way about many then them write would like so these her long make thing
see him two has look more day could go come did number sound no most people my over know water than
call first who may down side been now find any new work part take get place made live where after
back little only round man year came show every good me give our under name very through just form
sentence great think say help low line differ turn cause much mean before move right old too same
tell does set three want air well also play small end put home read hand port large spell add even
land here must big high such follow act why ask men change went light kind off need house picture
try us again animal point mother world near build self earth father head stand own page should
country found answer school grow study still learn plant cover food sun four between state keep eye
never last let thought city tree cross farm hard start might story saw far sea draw left late run
while press close night real life few north open seem together next white children begin got walk
example ease paper group always music those both mark often letter until mile river car feet care
second book carry took science eat room friend began idea fish mountain stop once base hear horse
cut sure watch color face wood main enough plain girl usual young ready above ever red list though
feel talk bird soon body dog family direct pose leave song measure door product black short numeral
class wind question happen complete ship area half rock order fire south problem piece told knew
pass since top whole king space heard best hour better true during hundred five remember step early
hold west ground interest reach fast verb sing listen six table travel less morning ten simple
several vowel toward war lay against pattern slow center love person money serve appear road map
rain rule govern pull cold notice voice unit power town fine certain fly fall lead cry dark machine
note wait plan figure star box noun field rest correct able pound done beauty drive stood contain
front teach week final gave green quick develop ocean warm free minute strong special mind behind
clear tail produce fact street inch multiply nothing course stay wheel full force blue object decide
surface deep moon island foot system busy test record boat common gold possible plane stead dry
wonder laugh thousand ago ran check game shape equate hot miss brought heat snow tire bring yes
distant fill east paint language among model token server request batch latency queue memory cache
data network compute software engine value result function code program user error file type string
"""
COMMON = COMMON_TEXT.split()

PUNCTUATION = [chr(code) for code in range(0x21, 0x7F) if not chr(code).isalnum()]
ASCII_LETTERS = [chr(code) for code in range(0x21, 0x7F) if chr(code).isalnum()]
OTHER = ["\n", "\t", *"éèêàâçîïôûüöäßñáíóúåøæ…–—‘’“”•·°€£×«»¿¡", "\ufffd"]  # noqa: RUF001
"""U+FFFD is here because a lone byte decodes to it: it then encodes to one token again."""

ENDINGS_TEXT = "ed er est ing ly ion tion ment ness able ful less ous ive al ity ism ist ize"
ENDINGS = ENDINGS_TEXT.split()


def fragments() -> Iterator[str]:
    """Pieces of words that are not in the vocabulary."""
    yield from ENDINGS
    yield from ("".join(pair) for pair in product("abcdefghijklmnopqrstuvwxyz", repeat=2))


def words() -> Iterator[str]:
    """Whole words: common ones, then openings of longer words, then made-up ones, more than fit."""
    yield from COMMON
    yield from (word.capitalize() for word in COMMON)
    yield from ASCII_LETTERS
    yield from PUNCTUATION
    yield from fragments()
    yield from ("".join(parts) for parts in product("bcdfghjklmnprstv", "aeiou", "lmnrst"))
    syllables = ["".join(parts) for parts in product("bdklmnprstvz", "aeiou")]
    for count in (2, 3):
        yield from ("".join(parts) for parts in product(syllables, repeat=count))


def vocabulary() -> list[str]:
    """Every piece in the order of its id: single characters, words, pieces of words."""
    head = [END, SPACE, *(f"<0x{byte:02X}>" for byte in range(256))]
    head += [*ASCII_LETTERS, *PUNCTUATION, *OTHER]
    tail = list(dict.fromkeys(fragments()))
    unique_words = itertools.islice(dict.fromkeys(words()), WORD_IDS - len(head) - len(tail))
    return [*head, *(SPACE + word for word in unique_words), *tail]


def tokenizer() -> Tokenizer:
    """Fewest pieces win (every piece scores the same); what has no piece falls back to bytes."""
    made = Tokenizer(
        models.Unigram([(piece, -1.0) for piece in vocabulary()], unk_id=0, byte_fallback=True)
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    made.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(replacement=SPACE, prepend_scheme="always")]
    )
    made.add_special_tokens([AddedToken(mark, special=True) for mark in (END, *MARKS)])
    return made


def write(directory: Path) -> None:
    """Write all files of the model into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in (
        ("config.json", SHAPE),
        ("generation_config.json", GENERATION),
        ("tokenizer_config.json", TOKENIZER_CONFIG),
    ):
        text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=True)
        (directory / name).write_text(text + "\n", encoding="utf-8")
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    (directory / "tokenizer.json").write_text(tokenizer().to_str() + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_DIRECTORY)
