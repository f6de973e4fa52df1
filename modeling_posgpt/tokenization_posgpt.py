"""The character tokenizer: one symbol a character, built once from the pretraining corpus."""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD_TOKEN = "□"  # U+25A1, id 0; also what an unknown character becomes
MASK_TOKEN = "⁇"  # U+2047, id 1; marks the hole, the end of the text and the end of the answer


def build_tokenizer(texts: Iterable[str], model_max_length: int) -> PreTrainedTokenizerFast:
    """Build the tokenizer of a corpus: `□` is 0, `⁇` is 1, then the corpus's characters in code point order.

    The line break that parts documents counts as one of the corpus's characters. A character the corpus does not hold
    becomes `□`, the sign fonts draw for what they cannot show: so the task keeps its 256 symbols (254 characters, PAD
    and MASK), and padding, which the attention mask hides, is not confused with it. The result is an ordinary fast
    tokenizer: a saved one loads with `AutoTokenizer` and needs no code of ours.

    Args:
        texts: Documents; read once, so a generator will do.
        model_max_length: The block, in tokens.
    """
    characters = {"\n"}
    for text in texts:
        characters.update(text)
    symbols = [PAD_TOKEN, MASK_TOKEN, *sorted(characters - {PAD_TOKEN, MASK_TOKEN})]
    tokenizer = Tokenizer(models.WordLevel({symbol: id for id, symbol in enumerate(symbols)}, unk_token=PAD_TOKEN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD_TOKEN,
        unk_token=PAD_TOKEN,
        mask_token=MASK_TOKEN,
        eos_token=MASK_TOKEN,
        model_max_length=model_max_length,
        # Generation continues at the right end of every row.
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )
