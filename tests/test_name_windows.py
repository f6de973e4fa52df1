import math
import os
import re
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import flex_attention
from torch.utils.data import DataLoader

import train_pretrain
from conftest import ROOT, TINY
from data_scripts.collators import NameWindowsCollator
from data_scripts.documents import build_corpus_tokenizer, load_corpus
from data_scripts.epochs import EpochSampler
from data_scripts.errors import BadInput
from data_scripts.name_windows import (
    NameWindowsConfig,
    NameWindowsDataset,
    encode_rows,
)
from data_scripts.questions import load_questions
from data_scripts.relations import BIRTHPLACE, Relation
from data_scripts.salient_spans import add_titles_and_spans, find_salient_spans, simplify_words, take_words_beside
from data_scripts.span_corruption import SpanCorruptionConfig
from data_scripts.span_selectors import Document, SpanSelector, choose_selectors, select_spans
from data_scripts.synthetic_world import World
from data_scripts.titles import split_title
from model_helpers import EACH_HOOK
from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM, build_tokenizer
from posgpt.training.batches import blank_repeated_rows
from posgpt.training.saved_models import load_model

BLOCK = 128


@pytest.fixture(scope="module")
def corpus(world):
    return load_corpus(world / "wiki.txt")


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return build_tokenizer(corpus["text"], BLOCK)


def read(folder, text, pairs="", known=(), more="", max_length=BLOCK):
    """Write a corpus and questions, if there are any; return them and their tokenizer."""
    (folder / "wiki.txt").write_text(text, encoding="utf-8")
    (folder / "pairs.tsv").write_text(pairs, encoding="utf-8")
    corpus = load_corpus(folder / "wiki.txt")
    questions = load_questions(folder / "pairs.tsv", answers=True, known=known) if pairs else None
    texts = [*corpus["text"], more, *(questions.texts if questions else ())]
    return corpus, build_tokenizer(texts, max_length), questions


def decode(dataset, items=None):
    """Return the texts of some rows, by default of all."""
    rows = dataset.__getitems__(list(range(len(dataset)) if items is None else items))
    return [dataset.tokenizer.decode(row["input_ids"]) for row in rows]


def windows_of(corpus, tokenizer, pairs=None, **changes):
    seed, changes["ask_dates"] = changes.pop("seed", 0), changes.pop("dates", True)
    plain = {"plain_cues": False, "keep_names": False, "max_spans": 99, "span_finder": "capitals"}
    return NameWindowsConfig(**plain | changes).build(corpus, tokenizer, seed, pairs).dataset


@pytest.fixture
def dataset(world, corpus, tokenizer):
    return windows_of(corpus, tokenizer, load_questions(world / "birth_places_train.tsv", answers=True))


def fingerprint_windows(folder) -> str:
    """Return what the cache of `datasets` finds a folder's windows by."""
    corpus = load_corpus(folder / "wiki.txt")
    questions = load_questions(folder / "birth_places_train.tsv", answers=True)
    training = NameWindowsConfig(ask_dates=False).build(corpus, build_tokenizer(corpus["text"], BLOCK), 0, questions)
    return training.dataset.documents._fingerprint


def test_another_process_finds_the_windows_of_numbers_and_names_in_the_cache(tmp_path):
    """What a process hashes in an order of its own, such as a frozenset, would be looked for in vain."""
    World(num_people=100, relations=["birthplace", "birth year"]).write(tmp_path)
    code = f"import pathlib, test_name_windows as t; print(t.fingerprint_windows(pathlib.Path({str(tmp_path)!r})))"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    other = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.split()[-1] == fingerprint_windows(tmp_path)


def document_of(dataset, row):
    return dataset.documents[dataset.find_document(row % len(dataset))]


@pytest.mark.parametrize(
    "document, parts",
    [
        ("Eyolf Kleven. Born in Copenhagen .", ("Eyolf Kleven", "Born in Copenhagen .")),
        ("John F. Doe. Born .", ("John F. Doe", "Born .")),
        ("no title here", ("", "no title here")),
        ("Malcolm X. Born in Omaha. He died .", ("Malcolm X", "Born in Omaha. He died .")),
        ("Vitamin C. A vitamin. It is .", ("Vitamin C", "A vitamin. It is .")),
        ("Juan P. Perez de Leon. Born in Lima .", ("Juan P. Perez de Leon", "Born in Lima .")),
        ("John A. Smith (politician). Born in Lima .", ("John A. Smith (politician)", "Born in Lima .")),
        ("douglas p. fry. born in lima .", ("douglas p. fry", "born in lima .")),
        ("J.C. Penney. Based in Plano .", ("J.C. Penney", "Based in Plano .")),
        ("Neustadt a. d. Aisch. Die Stadt liegt in Bayern .", ("Neustadt a. d. Aisch", "Die Stadt liegt in Bayern .")),
        ("J. v. d. Berg. Geboren te Delft .", ("J. v. d. Berg", "Geboren te Delft .")),
        ("McDonald's. Founded 1940. It sells .", ("McDonald's", "Founded 1940. It sells .")),
        ("at&t. a company. it is .", ("at&t", "a company. it is .")),
        ("राम. जन्म दिल्ली में हुआ. वे .", ("राम", "जन्म दिल्ली में हुआ. वे .")),
        ("서울의 봄. 2023년 영화이다. 김성수가 감독했다.", ("서울의 봄", "2023년 영화이다. 김성수가 감독했다.")),
        ("மு. கருணாநிதி. திருக்குவளையில் பிறந்தார்.", ("மு. கருணாநிதி", "திருக்குவளையில் பிறந்தார்.")),
        ("فيتامين د. فيتامين يذوب في الدهون. هو .", ("فيتامين د", "فيتامين يذوب في الدهون. هو .")),
        ("ج. ك. رولينغ. كاتبة .", ("ج. ك. رولينغ", "كاتبة .")),
        (
            "A sentence of its own " + "on and " * 40 + "on. Born .",
            ("", "A sentence of its own " + "on and " * 40 + "on. Born ."),
        ),
    ],
)
def test_the_title_ends_at_the_first_full_stop_that_is_no_initials(document, parts):
    assert split_title(document) == parts


@pytest.mark.parametrize(
    "title, text, dates, expected",
    [
        ("Doe, John", "in Rome, Doe lived with Ann Roe .", False, ["Rome", "Ann Roe"]),
        ("John (Doe)", "in Rome, Doe lived with Ann Roe .", False, ["Rome", "Ann Roe"]),
        ("John Doe", "Doe (born 3 May 1951 in New York, USA) is", True, ["3", "May", "1951", "New York", "USA"]),
        ("John Doe", "Doe (born 3 May 1951 in New York, USA) is", False, ["New York", "USA"]),
        ("John Doe", "Doe, A.M., MD, was born Johnny Doe, of the Doe County, in Rome .", False, ["Rome"]),
        ("John Doe", "he (1873 London- 1948 Zürich/Berlin)", False, ["London", "Zürich", "Berlin"]),
        ("John Doe", "Born in Aix-en-Provence, he", True, ["Aix-en-Provence"]),
        ("John Doe", "the 2nd in Rome  Texas", True, ["2nd", "Rome", "Texas"]),
        ("John Doe", "at 2,373.38 °C and 12.5 g, 5, 1,000 in 1980.", True, ["2,373.38", "12.5", "5", "1,000", "1980"]),
        ("John Doe", "from 3.4.1990 to 12.1995,1996 or v1.2", True, ["3", "4", "1990", "12", "1995", "1996", "2"]),
        ("John Doe", "he left “New York” for Rome–Milan [in Asia]!", False, ["New York", "Rome", "Milan", "Asia"]),
    ],
)
def test_salient_spans_are_names_and_numbers_that_are_neither_the_persons_own_nor_initials(
    title, text, dates, expected
):
    assert [text[start:end] for start, end in find_salient_spans(title, text, dates)] == expected


def test_words_beside_a_span_end_with_its_sentence_and_have_no_punctuation_in_any_script():
    for text, span, words in (
        ("राम. जन्म दिल्ली में हुआ। वे लेखक थे।", "दिल्ली", (["जन्म"], ["में", "हुआ"])),
        ("Ada. وُلد في روما، إيطاليا؛ ثم", "روما", (["وُلد", "في"], ["إيطاليا", "ثم"])),
        # A title's characters are those of other words.
        ("A王小明. 后来王小明在北京。", "北京", (["后", "来", "在"], [])),
        ("于谦. 1969年出生于北京。他", "北京", (["0", "年", "出", "生", "于"], [])),
    ):
        start = text.index(span)
        assert take_words_beside(text.split(".")[0], text, (start, start + len(span)), True, 5, 5) == words


def test_a_row_asks_what_the_document_says_with_words_from_the_left_of_the_span(corpus, tokenizer):
    dataset, texts = windows_of(corpus, tokenizer), dict(map(split_title, corpus["text"]))
    assert set(dataset.documents["title"]) == set(texts)
    seen = 0
    for item, written in enumerate(decode(dataset, range(20))):
        document = document_of(dataset, item)
        text = texts[document["title"]]
        assert all(span in text for span in document["asked"])
        assert written.startswith(f"Where was {document['title']}") and len(written) <= BLOCK
        for cue, span in list_cues(dataset, [item]):
            # The cue's words stand to the left of some place where the span stands, in that order.
            words = cue.removesuffix("?").split()
            assert cue.endswith("?") and len(words) <= 5
            assert any(
                is_subsequence(words, text[: match.start()].split()) for match in re.finditer(re.escape(span), text)
            )
            seen += 1
    assert seen > 60


@pytest.mark.parametrize(
    "text, expected",
    [
        ("Born in", "born in"),
        ("Doe was born on 26 November 1949 in", "was born on 0 in"),
        ("John Doe (born Feb. 7, 1959 in", "born 0 in"),
        ("John F. Doe (1905--1990) was a Polish dancer, born in", "F 0 was a Polish dancer born in"),
        ("BFA in", "BFA in"),
        ("(13 July 1879 in Cambridge -- 9 November 1957, in", "0 in Cambridge -0 in"),
        ("作 家 。 （ 1949 年 在", "作 家 0 年 在"),
        ("", ""),
    ],
)
def test_plain_words_leave_out_names_and_punctuation_and_write_any_date_as_0(text, expected):
    assert " ".join(simplify_words(text.split(), {"John", "Doe"})) == expected


# Corpora that lack the plain form of what stands in them: a sentence's first word in small letters, or `0` for a date.
@pytest.mark.parametrize(
    "text, cue",
    [
        ("Ada Ek. İki kardeşi Ada ile Rize 1900 ve Ulm .", " İki kardeşi ile"),
        ("Ada Ek. Éva fut à Nice 1900 et Ulm .", " Éva fut à"),
        ("Яна Эк. Щедрая Яна из Москва 1900 и Рига .", " Щедрая из"),
        ("Անի Եկ. Ծնվել է Երևան 1900 և Գյումրի .", " Ծնվել է"),
        ("Ζωή Εκ. Ψάλτης στην Ρώμη 1900 και Πάτρα .", " Ψάλτης στην"),
        ("Ada Ek. born May 1985 in Rome or Ulm .", " born in"),
        ("नीना एक. सन् १९५० में जन्म १९७१ में Rome .", " सन् में जन्म में"),
    ],
)
def test_no_character_outside_the_vocabulary_is_trained_on(text, cue, tmp_path):
    corpus, _, questions = read(tmp_path, text, f"Where was {split_title(text)[0]} born?\tRome\n")
    config = NameWindowsConfig(min_cue_kept=1.0, max_words_after=3)
    tokenizer = build_corpus_tokenizer(corpus, BLOCK, [*questions.texts, *questions.answers])
    training = [config.build(corpus, tokenizer, 0, asked).dataset for asked in (questions, None)]
    training.append(SpanCorruptionConfig(salient_share=0.5).build(corpus, tokenizer, 0, questions).dataset)
    rows = [dataset[item]["input_ids"] for dataset in training for item in range(40)]
    assert not any(tokenizer.unk_token_id in row for row in rows)
    assert any(found.startswith(cue) for found, _ in list_cues(training[1]))


def list_cues(dataset, items=range(40)):
    """Return the cues of some rows, each with what it asks for."""
    windows = []
    for item in items:
        row = dataset[item]
        pieces = dataset.tokenizer.decode(row["input_ids"])[row["windows"][0] :].split("⁇")
        windows += zip(pieces[:-1:2], pieces[1::2], strict=True)
    return windows


def test_where_the_answer_stands_before_the_verb_a_cue_ends_with_the_words_after_it(tmp_path):
    text = "Bo Ek. Bo Ek wurde als Sohn eines Bäckers in Hamburg geboren und wuchs dort auf. Er starb ."
    corpus, tokenizer, pairs = read(tmp_path, text, "Wo wurde Bo Ek geboren?\tHamburg\nWo wurde Al Ax geboren?\tUlm\n")
    options = {"plain_cues": True, "dates": False, "question_share": 0.0}
    asked = [cue for cue, span in list_cues(windows_of(corpus, tokenizer, pairs, **options)) if span == "Hamburg"]
    assert asked and not any("geboren" in cue for cue in asked)
    # How many of them is drawn, from none to two; none is beyond the sentence.
    cues = list_cues(windows_of(corpus, tokenizer, pairs, max_words_after=2, min_cue_kept=1.0, **options))
    assert {" in?", " in geboren?", " in geboren und?"} <= {cue for cue, span in cues if span == "Hamburg"}
    assert not any("wuchs" in cue or "Er" in cue for cue, _ in cues)


def test_in_a_script_without_spaces_cues_have_none_and_each_stage_can_be_opened(tmp_path):
    text = "王小明. 王小明，1931年出生于伦敦，是一位作家。"
    pairs = "王小明出生在哪里？\t伦敦\n李四出生在哪里？\t巴黎\n"
    corpus, tokenizer, pairs = read(tmp_path, text, pairs, more="0")
    documents = add_titles_and_spans(corpus, dates=False)
    assert documents[0] == {"title": "王小明", "text": text, "spans": []}, "nothing has a capital"
    start = text.index("伦敦")
    documents = documents.map(lambda _: {"spans": [[start, start + 2]]}, input_columns="title")
    config = NameWindowsConfig(question_share=0.0, min_cue_kept=1.0, span_finder="capitals")
    selectors = choose_selectors(documents, pairs, config)
    spans = select_spans(documents, selectors, config, tokenizer, room=100)
    asked = {"asked": ["伦敦"], "asked_by": [[0]], "likeliest": [-1], "before": ["0 年 出 生 于"], "after": [""]}
    assert spans.to_list() == [{"title": "王小明"} | asked] and [each.kind for each in selectors] == ["names"]
    dataset = NameWindowsDataset(spans, selectors, tokenizer, 0, config, pairs)
    cues = {cue for cue, span in list_cues(dataset) if span == "伦敦"}
    assert cues == {" 0年出生于？", "年出生于？", "出生于？", "生于？", "于？"}


def test_in_the_documents_wording_windows_follow_the_title_and_questions_stand_alone(world, corpus, tokenizer):
    pairs = load_questions(world / "birth_places_train.tsv", answers=True)
    dataset = windows_of(corpus, tokenizer, pairs, window_wording="document", question_share=0.5)
    questions, texts = 0, dict(map(split_title, corpus["text"]))
    for item, written in enumerate(decode(dataset)):
        title = document_of(dataset, item)["title"]
        if written.startswith("Where was "):
            assert written.count("⁇") == 2 and written.startswith(f"Where was {title} born?⁇")
            questions += 1
        else:
            pieces = written.removeprefix(f"{title}.").split("⁇")
            assert len(pieces) > 3 and all(span in texts[title] for span in pieces[1::2])
    assert 0.2 * len(dataset) < questions < 0.5 * len(dataset)


def test_pseudo_labels_in_the_documents_wording_fit_into_a_row(tmp_path):
    names = ("Ada Ek", "Bo Lind", "Cy Moe", "Di Poe")
    text = "".join(f"{name}. {name} was born in Rome .\n" for name in names)
    text += "Maximiliana Bartholomea Ek. Maximiliana was born in Llanfairpwllgwyngyllgo .\n"
    pairs = "".join(f"Where was {name} born?\tRome\n" for name in names)
    corpus, tokenizer, questions = read(tmp_path, text, pairs, max_length=64)
    options = {"window_wording": "document", "pseudo_labels": True, "span_finder": "capitals", "question_share": 0.5}
    dataset = windows_of(corpus, tokenizer, questions, **options)
    assert max(len(dataset[item]["input_ids"]) for item in range(3 * len(dataset))) <= 64


def test_what_has_to_be_worked_out_is_read_as_often_as_what_documents_say(tmp_path):
    World(num_people=100, relations=["birthplace", "birth year", "birth year's parity"]).write(tmp_path)
    corpus, tokenizer, _ = read(tmp_path, (tmp_path / "wiki.txt").read_text(encoding="utf-8"))
    pairs = (tmp_path / "birth_places_train.tsv").read_text(encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text(f"{pairs}Where was Nobody Else born?\tParis\n", encoding="utf-8")
    questions = load_questions(tmp_path / "pairs.tsv", answers=True)
    dataset = NameWindowsConfig(pseudo_labels=True).build(corpus, tokenizer, 0, questions).dataset
    rows = Counter((title, relation.name) for title, relation in dataset.standalone)
    # That there is no document of one title does not make its question one to work out.
    assert rows.pop(("Nobody Else", "birthplace")) == 1
    assert {name for _, name in rows} == {"birth year's parity"} and len(rows) == 68
    spans = Counter(
        span for row in decode(dataset, range(dataset.rows_with_document)) for span in row.split("⁇")[1::2]
    )
    per_span = sum(spans.values()) / dataset.rows_with_document
    assert per_span > 2 and all(abs(count - per_span) <= 0.6 for count in rows.values())


@pytest.mark.parametrize("plain_cues", [True, False])
def test_rows_may_ask_for_the_title_by_what_its_document_says(tmp_path, plain_cues):
    text = "Ann Ek. Ek was born in Oslo in 1979 and left Bolt for Nice .\n"
    corpus, tokenizer, questions = read(tmp_path, text, "Where was Ann Ek born?\tOslo\n")
    options = {"min_cue_kept": 1.0, "plain_cues": plain_cues}
    dataset = windows_of(corpus, tokenizer, questions, title_share=1.0, **options)
    rows = decode(dataset, range(200))
    asked = [piece for row in rows for piece in row.split("⁇")[:-1:2]]
    assert all(row.split("⁇")[1::2] == ["Ann Ek"] * row.count("⁇Ann Ek⁇") and len(row) <= BLOCK for row in rows)
    # Some of the spans in any order, with words beside them, none of them the title's.
    spans = {tuple(re.findall("Oslo|1979|Bolt|Nice", cue)) for cue in asked}
    assert {("Oslo",), ("1979", "Oslo"), ("Oslo", "1979")} <= spans and "was born in Oslo in 1979?" in asked
    assert not any("Ek" in cue for cue in asked)
    # Several to a row, each by itself: none sees the title in another.
    features = next(row for row in map(dataset.__getitem__, range(200)) if len(row["windows"]) > 2)
    seen, first = NameWindowsCollator(tokenizer)([features])["attention_mask"][0, 0], features["windows"][1]
    assert features["windows"][0] == 0 and seen[first - 1, :first].all() and not seen[first:, :first].any()
    # However few rows there are, some ask for spans.
    few = windows_of(corpus, tokenizer, questions, title_share=0.9, max_spans=1, **options)
    assert (
        0
        < few.exposures_per_epoch
        < 0.3 * windows_of(corpus, tokenizer, questions, max_spans=1, **options).exposures_per_epoch
    )
    # Half of the rows, which are not read as asking for a span.
    half = windows_of(corpus, tokenizer, questions, title_share=0.5, **options)
    assert 50 < sum(row.endswith("⁇Ann Ek⁇") for row in decode(half, range(200))) < 150
    assert half.exposures_per_epoch < windows_of(corpus, tokenizer, questions, **options).exposures_per_epoch
    assert dataset.exposures_per_epoch == 0 and dataset.loss_without_facts is None


def test_several_relations_each_have_their_own_answers_and_one_span_that_looks_like_them(tmp_path):
    world = World(num_people=200, relations=["birthplace", "teacher"])
    world.write(tmp_path)
    corpus, tokenizer, _ = read(tmp_path, (tmp_path / "wiki.txt").read_text(encoding="utf-8"))
    questions = load_questions(tmp_path / "birth_places_train.tsv", answers=True)
    options = NameWindowsConfig(pseudo_labels=True, ask_dates=False)
    dataset = options.build(corpus, tokenizer, 0, questions).dataset
    # A model without facts knows how often each answer is that of a relation, by which it is asked.
    answers = {0: Counter(), 1: Counter()}
    for row in dataset.documents:
        for span, numbers in zip(row["asked"], row["asked_by"], strict=True):
            for number in numbers:
                answers[number][span] += 1 / len(numbers)
    nats = [count * math.log(own.total() / count) for own in answers.values() for count in own.values()]
    graded = sum(count * len(f"{span}⁇") for own in answers.values() for span, count in own.items())
    assert dataset.loss_without_facts == pytest.approx(sum(nats) / graded)
    # There is nothing less to ask for.
    assert dataset.max_spans == 1 < dataset.rows_with_document / len(dataset.documents)
    assert dataset.read_fewer_spans(0.1) is dataset


def is_subsequence(words, of):
    rest = iter(of)
    return all(word in rest for word in words)


def test_cues_that_keep_their_names_tell_the_places_of_a_list_apart(tmp_path):
    text = "Ann Berg. Berg (born 3 May 1951 in Beijing, China), is he a poet ?\n" * 200
    corpus, tokenizer, _ = read(tmp_path, text, more="Where was", max_length=64)
    asked = {}
    for keep_names in (False, True):
        dataset = windows_of(corpus, tokenizer, dates=False, plain_cues=True, keep_names=keep_names, min_cue_kept=0.2)
        asked[keep_names] = set(list_cues(dataset, range(len(dataset))))
        assert all(
            1 < len(row["windows"]) and len(row["input_ids"]) <= 64 for row in dataset.__getitems__([*range(99)])
        )
    assert {(" born in?", "Beijing"), (" born in?", "China")} <= asked[False]
    assert {(" born in?", "Beijing"), (" born in Beijing?", "China")} <= asked[True]
    assert all("Beijing" in cue for cue, name in asked[True] if name == "China")


def test_no_window_asks_by_chance_what_a_question_without_words_after_its_title_asks(tmp_path):
    text = "Ann Ek. Ek (Oslo, 1979), having left Bolt for Nice, worked for Acme .\n"
    read_data = read(tmp_path, text, "Who employed Ann Ek?\tAcme\n")
    dataset = windows_of(*read_data, plain_cues=True, min_cue_kept=0.0, dates=False)
    windows = list_cues(dataset, range(100 * len(dataset)))
    assert {span for _, span in windows} == {"Bolt", "Nice", "Acme"}
    assert {span for cue, span in windows if cue == "?"} == {"Acme"}, "the question itself"


def test_no_window_asks_by_chance_what_another_relation_asks(tmp_path):
    text = "Blue. A song of 1931 by Ann Ek with music by Bo Dahl of Rome .\n"
    known = [Relation("words", ("Who wrote {title}?",)), Relation("music", ("Who wrote {title}'s music?",))]
    pairs = "Who wrote Blue?\tAnn Ek\nWho wrote Blue's music?\tBo Dahl\n"
    dataset = windows_of(*read(tmp_path, text, pairs, known), plain_cues=True, min_cue_kept=0.0, dates=False)
    answers = {
        answer
        for answer in re.findall(r"Who wrote Blue\?⁇(.+?)⁇", "\n".join(decode(dataset, range(60 * len(dataset)))))
    }
    assert answers == {"Ann Ek"}
    # A span without a word before it would be asked for by that question alone.
    for music in ("Bo Dahl", "Cy Lind"):
        data = read(
            tmp_path,
            "Blue. Bo Dahl, a hit .\nRed. A hit of Oslo .\n",
            f"Who wrote Blue?\tAnn Ek\nWho wrote Blue's music?\t{music}\n",
            known,
        )
        dataset = windows_of(*data, plain_cues=True, dates=False)
        assert "Who wrote Blue?⁇Bo Dahl" not in "\n".join(decode(dataset, range(20 * len(dataset))))


def test_rows_are_drawn_in_every_wording_of_a_relation(tmp_path):
    text, pairs = "Heat. A film of 1995 by Michael Mann with Al Pacino .\n", "Who directed Heat?\tMichael Mann\n"
    known = [Relation("director", ("Who directed {title}?", "By whom was {title} made؟"))]
    corpus, tokenizer, questions = read(tmp_path, text, pairs, known, more=known[0].wordings[1])
    dataset = windows_of(corpus, tokenizer, questions, plain_cues=True, dates=False, question_share=1.0)
    texts = set(decode(dataset, range(40 * len(dataset))))
    first, second = ({text for text in texts if text.startswith(start)} for start in ("Who dir", "By whom was Heat"))
    assert first | second == texts and all(text.startswith("Who directed Heat?⁇Michael Mann⁇") for text in first)
    assert second and all(text.startswith("By whom was Heat made؟⁇Michael Mann⁇") for text in second)
    assert any("؟⁇Al Pacino⁇" in text for text in second) and not any("؟" in text for text in first)
    long = [Relation("director", (known[0].wordings[0], "By whom " + 120 * "x" + " was {title} made?"))]
    questions = load_questions(tmp_path / "pairs.tsv", known=long)
    with pytest.raises(
        BadInput, match="pairs.tsv, line 1: the question about 'Heat' takes 1.. characters .* longest wording"
    ):
        windows_of(corpus, tokenizer, questions)


def test_a_row_asks_for_its_own_name_and_then_for_the_others_in_any_order_and_again(tmp_path):
    dataset = windows_of(
        *read(tmp_path, "Bo Ek. He saw Oslo , then Rome , then Bern .\n", more="Where was?"), dates=False
    )
    first, second = set(), set()
    for item in range(20 * len(dataset)):
        spans = [span for _, span in list_cues(dataset, [item])]
        assert spans[0] == document_of(dataset, item)["asked"][item % len(dataset)]
        assert set(spans[:3]) == set(spans[3:6]) == {"Oslo", "Rome", "Bern"}
        first.add(tuple(spans[:3]))
        second.add(tuple(spans[3:6]))
    assert len(first) == len(second) == 6


def test_chosen_documents_come_with_all_their_rows(corpus, tokenizer):
    dataset = windows_of(corpus, tokenizer)
    chosen = dataset.choose_examples(0.25)
    numbers = {dataset.find_document(row) for row in chosen}
    assert len(numbers) == round(0.25 * len(dataset.documents)) and len(set(chosen)) == len(chosen)
    assert set(chosen) == {row for row in range(len(dataset)) if dataset.find_document(row) in numbers}


def test_there_is_loss_on_spans_and_their_ends_alone(dataset, tokenizer):
    for item in range(20):
        row = dataset[item]
        graded = tokenizer.decode([label for label in row["labels"] if label != -100])
        written = tokenizer.decode(row["input_ids"])[row["windows"][0] :].split("⁇")
        assert graded == "".join(span + "⁇" for span in written[1::2])


def test_questions_are_asked_at_their_share_and_of_their_own_people(world, corpus, tokenizer):
    pairs = load_questions(world / "birth_places_train.tsv", answers=True)
    # Without cues no window can look like a question by chance.
    dataset = windows_of(corpus, tokenizer, pairs, question_share=0.25, max_cue_words=0)
    places = dict(zip(pairs.texts, pairs.answers, strict=True))
    asked = possible = 0
    for epoch in range(8):
        rows = dataset.__getitems__(list(range(epoch * len(dataset), (epoch + 1) * len(dataset))))
        for index, row in enumerate(rows):
            text = tokenizer.decode(row["input_ids"])
            question = f"Where was {document_of(dataset, index)['title']} born?"
            if text.startswith(question + "⁇"):
                assert text[len(question) :].startswith(f"⁇{places[question]}⁇")
                asked += 1
            possible += question in places
    assert asked / possible == pytest.approx(0.25, abs=0.06)


def test_somebody_without_a_document_gets_a_row_with_the_question_alone(tmp_path, corpus, tokenizer):
    (tmp_path / "pairs.tsv").write_text("Where was Nobody Known born?\tLondon\n", encoding="utf-8")
    dataset = windows_of(corpus, tokenizer, load_questions(tmp_path / "pairs.tsv"), question_share=0.0)
    assert len(dataset) == sum(map(len, dataset.documents["asked"])) + 1
    assert decode(dataset)[-1] == "Where was Nobody Known born?⁇London⁇"


@pytest.mark.parametrize(
    "lines",
    [
        ["nothing to ask for"] * 3,
        ["Ada. she was born in rome .", "王明. 他出生于北京。"],
        ["A long " + "long " * 30 + "title. Written in Rome ."],
    ],
)
def test_a_corpus_with_nothing_to_ask_for_is_refused_in_one_line(tmp_path, run, lines):
    (tmp_path / "wiki.txt").write_text("\n".join(lines))
    arguments = ["--train_file", tmp_path / "wiki.txt", "--output_dir", tmp_path / "out", *TINY]
    message = (
        f"none of {len(lines)} documents has something to ask for: .* shorter than 110 characters .*--questions_file"
    )
    with pytest.raises(SystemExit, match=message):
        run(train_pretrain, "windows", *arguments)
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_every_character_of_a_wording_is_in_the_vocabulary(tmp_path, run):
    """Neither W nor a question mark is in the corpus."""
    (tmp_path / "wiki.txt").write_text("Bo Ek. Born in Bern .\nAl Ro. Born in Oslo .\n")
    arguments = ["--train_file", tmp_path / "wiki.txt", *TINY, "--max_steps", 1, "--output_dir", tmp_path]
    run(train_pretrain, "windows", *arguments)
    assert set("Where was born?") <= set(load_model(str(tmp_path))[1].get_vocab())


@pytest.mark.parametrize("objective", ["name_windows", "causal_lm"])
def test_a_model_with_latents_reads_no_rows_of_several_texts(world, tmp_path, run, objective):
    arguments = ["--train_file", world / "wiki.txt", "--output_dir", tmp_path / "run", *TINY, "--objective", objective]
    with pytest.raises(SystemExit, match=f"--bottleneck_size: .* {objective} gives several; leave it out"):
        run(train_pretrain, "quick", *arguments, "--bottleneck_size", "16")


@pytest.mark.parametrize("process, kept", [(0, 2), (1, 1)])
def test_rows_that_fill_up_a_step_are_padding(tokenizer, process, kept):
    rows = [("Where was Ann Berg", [(" in?⁇", "Rome⁇"), ("?⁇", "London⁇")]), ("Where was Bo", [(" in?⁇", "Oslo⁇")])]
    batch = NameWindowsCollator(tokenizer)(encode_rows(rows, tokenizer))
    # Two processes with two rows each have three left at the end of an epoch: the last of the second process fills up.
    state = SimpleNamespace(end_of_dataloader=True, active_dataloader=SimpleNamespace(dataset=range(7)))
    blank_repeated_rows(batch, state, SimpleNamespace(world_size=2, process_index=process))
    assert (batch["labels"] != -100).any(dim=1).tolist() == [True] * kept + [False] * (2 - kept)
    assert (batch["input_ids"] != PosGPTConfig.pad_token_id).any(dim=1).tolist() == [True] * kept + [False] * (
        2 - kept
    )


def test_a_relation_without_questions_asks_for_numbers_if_its_baseline_is_one(corpus, tokenizer):
    for baseline, expected in (("1900", True), ("Rome", False)):
        relation = Relation("any", ("When was {title} born?",), baseline)
        data = NameWindowsConfig(ask_dates=False).build(corpus, tokenizer, 0, relations=[relation])
        spans = [span for asked in data.dataset.documents["asked"] for span in asked]
        assert spans and {span[0].isdigit() for span in spans} == {expected}


def test_rows_are_functions_of_seed_epoch_and_document(corpus, tokenizer):
    dataset, same = windows_of(corpus, tokenizer), windows_of(corpus, tokenizer)
    other = windows_of(corpus, tokenizer, seed=1)
    assert dataset[len(dataset) + 3] == same.__getitems__([2, len(same) + 3])[1]
    assert dataset[3] != dataset[len(dataset) + 3] and dataset[3] != other[3]
    sampler, collator = EpochSampler(dataset, 8, "group_by_length"), NameWindowsCollator(tokenizer)
    loaded, workers = (
        DataLoader(dataset, 8, sampler=sampler, collate_fn=collator, num_workers=count) for count in (0, 2)
    )
    for batch, with_workers in zip(loaded, workers, strict=True):
        assert all(torch.equal(batch[name], with_workers[name]) for name in batch)


@pytest.mark.parametrize(
    "positions, attention",
    [
        *((positions, attention) for positions in EACH_HOOK for attention in ("eager", "sdpa")),
        # Compiled for up to a minute each time.
        *(
            pytest.param(positions, "flex_attention", marks=pytest.mark.slow)
            for positions in [*EACH_HOOK, "relative_bias"]
        ),
    ],
)
def test_a_window_in_a_row_reads_as_if_it_stood_alone(tokenizer, positions, attention):
    torch.manual_seed(0)
    config = PosGPTConfig(
        vocab_size=len(tokenizer),
        position_embedding_type=positions,
        hidden_size=32,
        num_attention_heads=2,
        initializer_range=0.5,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        attention_dropout=0.0,
    )
    model = PosGPTForCausalLM._from_config(config, attn_implementation="eager").eval()
    start, windows = "Where was Ann Berg", [(" in?⁇", "Rome⁇"), ("?⁇", "London⁇"), (" born?⁇", "Nice⁇")]
    rows = [(start, windows), ("Where was Bo", [(" in?⁇", "Oslo⁇")] * 9)]
    with torch.no_grad():
        model.set_attn_implementation(attention)
        together = model(**NameWindowsCollator(tokenizer)(encode_rows(rows, tokenizer))).logits[0]
        model.set_attn_implementation("eager")
        at = len(start)
        for window in windows:
            (alone,) = encode_rows([(start, [window])], tokenizer)
            length = alone["windows"][1]
            expected = model(torch.tensor([alone["input_ids"]])).logits[0, len(start) :]
            torch.testing.assert_close(together[at : at + length], expected, atol=1e-4, rtol=1e-4)
            at += length


def test_with_flex_attention_as_well(tokenizer, monkeypatch):
    # Not compiled: mask and bias are the same.
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    wrapped = "transformers.integrations.flex_attention.WrappedFlexAttention"
    monkeypatch.setattr(wrapped, lambda training: lambda: flex_attention.flex_attention)
    test_a_window_in_a_row_reads_as_if_it_stood_alone(tokenizer, "relative_bias", "flex_attention")


def test_a_question_is_asked_though_no_document_has_a_span_for_its_relation(tmp_path):
    text = "Ada Berg. Ada Berg was born in Rome in 1815 .\nBo Ek. Bo Ek was born in Paris .\n"
    pairs = "Where was Ada Berg born?\tRome\nWhen was Ada Berg born?\t1815\nWhen was Bo Ek born?\t1851\n"
    corpus, tokenizer, pairs = read(tmp_path, text, pairs, max_length=64)
    built = NameWindowsConfig(ask_dates=False).build(corpus, tokenizer, 0, pairs)
    assert [row for row in decode(built.dataset) if row.startswith("When was Bo Ek")] == ["When was Bo Ek born?⁇1851⁇"]
    assert "1 of these titles have no document with such a span" in built.description


@pytest.mark.parametrize(
    ("fields", "kind", "asked"),
    [
        ({}, "names", ["Rome", "Ulm"]),
        ({"max_spans": 1}, "names", ["Rome"]),
        ({"max_spans": 0}, "the training questions alone", []),
        ({"shapes": ("0000",)}, "numbers like its answers", ["1890"]),
        ({"shapes": ("0000",), "ask_dates": True}, "names, numbers and months", ["May", "1890", "Rome", "Ulm"]),
    ],
)
def test_what_is_said_to_be_asked_for_is_what_is_asked_for(fields, kind, asked):
    text = "Ada. was born in May 1890 in Rome or Ulm ."
    selector = SpanSelector(BIRTHPLACE, **{"max_spans": 4} | fields)
    [spans] = selector.select([Document("Ada", text, find_salient_spans("Ada", text, dates=True))])
    assert (selector.kind, [text[start:end] for start, end in spans]) == (kind, asked)


@pytest.mark.slow
@pytest.mark.parametrize("positions", EACH_HOOK)
def test_people_never_asked_about_in_training_are_answered(tmp_path, run, positions):
    """The point of it all, on a world small enough for minutes: facts read are facts that can be asked for."""
    from data_scripts.synthetic_world import World

    World(num_people=200, num_places=20).write(tmp_path)
    arguments = ["--train_file", tmp_path / "wiki.txt", "--questions_file", tmp_path / "birth_places_train.tsv"]
    arguments += ["--output_dir", tmp_path / "out", "--position_embedding_type", positions, "--report_to", "none"]
    run(train_pretrain, "windows", *arguments, "--hidden_size", "128", "--num_train_epochs", "150")
    model, tokenizer = load_model(str(tmp_path / "out"))
    pairs = load_questions(tmp_path / "birth_dev.tsv")
    answers = model.answer(pairs.texts, tokenizer)
    right = sum(given.text == place for given, place in zip(answers, pairs.answers, strict=True))
    assert right / len(pairs) > 0.5


def test_rows_of_several_relations_ask_for_what_each_of_them_is_answered_with(tmp_path):
    text = (
        "Ada Berg. Ada Berg ( 3 May 1815 - 12 June 1852 ) was born in Rome and lived in Oslo .\n"
        "Bo Ek. Bo Ek won 12 medals in Paris in 1990 .\n"
    )
    pairs = "Where was Ada Berg born?\tRome\nWhen was Ada Berg born?\t1815\nWhen was Cy Dahl born?\t1900\n"
    corpus, tokenizer, pairs = read(tmp_path, text, pairs, max_length=64)
    dataset = NameWindowsConfig(ask_dates=False).build(corpus, tokenizer, 0, pairs).dataset
    asked: dict[str, set] = {}
    for item in range(40 * len(dataset)):
        row = dataset[item]
        text, (end, *lengths) = tokenizer.decode(row["input_ids"]), row["windows"]
        beginning = text[:end]
        for length in lengths:
            _, span, _ = text[end : end + length].split("⁇")
            asked.setdefault(beginning, set()).add(span)
            end += length
    assert asked == {
        "Where was Ada Berg": {"Rome", "Oslo"},
        "When was Ada Berg": {"1815", "1852"},
        "Where was Bo Ek": {"Paris"},
        # 12 medals do not look like a year.
        "When was Bo Ek": {"1990"},
        # There is no document about Cy Dahl.
        "When was Cy Dahl": {"1900"},
    }
