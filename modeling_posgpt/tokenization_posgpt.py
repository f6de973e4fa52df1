"""The character tokenizer: one symbol per character, built once from the pretraining corpus."""

from collections.abc import Iterable, Sequence
from itertools import chain

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD_TOKEN = "□"  # U+25A1, id 0; also what an unknown character becomes
MASK_TOKEN = "⁇"  # U+2047, id 1; marks a hole, the end of a text and the end of an answer


def build_tokenizer(
    texts: Iterable[str], model_max_length: int, known: Sequence[str] = (PAD_TOKEN, MASK_TOKEN)
) -> PreTrainedTokenizerFast:
    """Build the tokenizer of a corpus: `□` is 0, `⁇` is 1, then the corpus's characters in code point order.

    The line break, which separates documents, always counts as one of the corpus's characters. Any other character that
    the corpus does not have becomes `□`, the sign that fonts show for characters they lack. So the task keeps its 256
    symbols (254 characters, PAD and MASK), and nothing confuses unknown characters with padding, which the attention mask
    hides. The result is an ordinary fast tokenizer: once saved, it loads with `AutoTokenizer` and needs no code of ours.

    Args:
        texts: Documents; read once, so a generator will do.
        model_max_length: The model's maximum sequence length, in tokens.
        known: The symbols of an earlier tokenizer, `□` and `⁇` first; they keep their ids, and new ones follow.
    """
    characters = {"\n", *chain.from_iterable(texts)}
    symbols = [*known, *sorted(characters.difference(known))]
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
        # Generation continues on the right.
        padding_side="left",
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )
