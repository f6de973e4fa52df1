from random import Random

import pytest
from transformers import AutoTokenizer

from modeling_posgpt import MASK_TOKEN, PAD_TOKEN, build_tokenizer

CHARACTERS = "aZé é́ß 　😀👩‍👩‍👧.'-\t\n\r\u2028中𝔸"
TOKENIZER = build_tokenizer([CHARACTERS], 64)


def test_pad_is_0_mask_is_1_and_then_come_the_characters_in_order():
    tokenizer = build_tokenizer(["b a", "ca"], 64)
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == [PAD_TOKEN, MASK_TOKEN, "\n", " ", "a", "b", "c"]
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id, tokenizer.eos_token_id) == (0, 1, 1)
    assert (PAD_TOKEN, MASK_TOKEN) == ("\u25a1", "\u2047")


def draw_texts(alphabet: str) -> list[str]:
    draws = Random(0)
    return ["".join(draws.choices(alphabet, k=draws.randrange(12))) for _ in range(50)]


@pytest.mark.parametrize(
    "text",
    [
        "a\n\n\na  a\r\n",
        f" {MASK_TOKEN}  {PAD_TOKEN}{PAD_TOKEN} {MASK_TOKEN}{MASK_TOKEN}\n",
        *draw_texts(CHARACTERS + PAD_TOKEN + MASK_TOKEN),
    ],
)
def test_decoding_gives_back_every_string_of_known_characters(text):
    ids = TOKENIZER.encode(text)
    assert len(ids) == len(text)
    assert TOKENIZER.decode(ids) == text


@pytest.mark.parametrize("text", draw_texts(CHARACTERS + "Łb\0\x7fم\u200d𝔹🙃"))
def test_an_unknown_character_becomes_one_pad_sign(text):
    ids = TOKENIZER.encode(text)
    known = set(TOKENIZER.get_vocab())
    assert TOKENIZER.decode(ids) == "".join(char if char in known else PAD_TOKEN for char in text)


def test_the_saved_tokenizer_is_the_same_without_our_code(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = f"a  Z\n{MASK_TOKEN}é ß?"
    assert loaded.encode(text) == TOKENIZER.encode(text)
    assert loaded.decode(loaded.encode("a  Z .")) == "a  Z ."
    assert loaded.model_max_length == 64
    assert loaded.padding_side == "left"
    assert len(loaded("a" * 100, truncation=True).input_ids) == 64
    assert (loaded.pad_token_id, loaded.unk_token_id, loaded.mask_token_id) == (0, 0, 1)


def test_a_batch_is_padded_on_the_left_where_generation_does_not_go_on():
    batch = TOKENIZER(["aZ", "a"], padding=True)
    assert batch["input_ids"][1][0] == 0
    assert batch["attention_mask"] == [[1, 1], [0, 1]]
