"""The wording of a question: pseudo-labels ask the plain question of every title, paraphrases ask it in other words."""

import re
from dataclasses import replace

import numpy as np
import pytest

from data_scripts.name_windows import NameWindowsConfig
from data_scripts.paraphrases import Paraphraser, list_title_marks, list_title_starts, list_words
from data_scripts.relations import Wording
from data_scripts.words import split_words
from modeling_posgpt import build_tokenizer
from test_name_windows import decode, read

DIRECTORS = ["Ana Berg", "Bo Costa", "Ida Lind", "Leo Moreau", "Eva Holm"]
STARS = ["Kim Ek", "Tea Ros", "Per Dal", "Una Fors"]
KINDS, THINGS = ["Last", "Quiet", "Red", "Lost", "Golden", "Cold"], "Harbour Winter Train Garden Letter Mirror".split()
THINGS += "Island Bridge River Tower".split()


def read_films(folder, *forms):
    """Return a corpus of 60 films, its tokenizer and questions about the first 40, in each of the forms."""
    films = [(f"{KINDS[i % 6]} {THINGS[i % 10]}{'s' * (i // 30)}", DIRECTORS[i % 5], STARS[i % 4]) for i in range(60)]
    text = "".join(
        f"{title}. A film about {star} of 19{10 + i}, directed by {director}, in colour.\n"
        for i, (title, director, star) in enumerate(films)
    )
    answers = {"direct": 1, "star": 2}
    pairs = "".join(
        f"{form.format(film[0])}\t{film[next(answers[word] for word in answers if word in form)]}\n"
        for form in forms
        for film in films[:40]
    )
    return films, *read(folder, text, pairs, more="?:.")


def test_the_plain_question_of_a_title_without_questions_asks_for_the_likeliest_answer_alone(tmp_path):
    films, corpus, tokenizer, pairs = read_films(tmp_path, "Who directed {}?")
    plain = {"question_share": 1.0, "min_cue_kept": 0.0, "ask_dates": False}
    for pseudo_labels, number in ((False, 0), (True, 20)):
        training = NameWindowsConfig(**plain, pseudo_labels=pseudo_labels).build(corpus, tokenizer, 0, pairs)
        said, dataset = " ".join([training.description, *training.describe_held_out()]), training.dataset
        assert pseudo_labels == ("20 titles without a" in said) == ("40 pseudo-labels, 40 are correct" in said)
        rows = decode(dataset, range(3 * len(dataset)))
        asked = {
            title: set(re.findall(r"(?:^Who directed " + title + r"|⁇)\?⁇([^⁇]+)⁇", "\n".join(own)))
            for title, *_ in films[40:]
            if (own := [row for row in rows if row.startswith(f"Who directed {title}")])
        }
        answered = {title: answers for title, answers in asked.items() if answers}
        assert len(answered) == number
        assert all(answered[title] == {director} for title, director, _ in films[40:] if title in answered)


def test_the_commonest_span_of_titles_that_are_asked_no_question_is_named(tmp_path):
    films, *_ = read_films(tmp_path, "Who directed {}?")
    text = "".join(f"{title}. In colour, directed by {director}, at last.\n" for title, director, _ in films[:45])
    text += "".join(f"{title}. A film of cats that Rome, once, saw.\n" for title, *_ in films[45:])
    pairs = "".join(f"Who directed {title}?\t{director}\n" for title, director, _ in films[:40])
    corpus, tokenizer, questions = read(tmp_path, text, pairs, more="?:.")
    said = NameWindowsConfig(pseudo_labels=True, ask_dates=False).build(corpus, tokenizer, 0, questions).description
    assert "5 titles without a training question" in said
    assert (
        "No question is asked about 15 titles" in said
        and f"'Rome' stands in 15 of these, such as {films[45][0]!r}" in said
    )


def test_a_known_answer_alone_is_asked_for_in_the_plain_question(tmp_path):
    """Documents of 10 films say something else where answers are, with no word before it."""
    films = [(f"{kind} {thing}", DIRECTORS[len(kind + thing) % 5]) for kind in KINDS for thing in THINGS[:5]]
    known = {title: director if i % 2 else "Una Holm" for i, (title, director) in enumerate(films[:20])}
    text = "".join(f"{title}. {director}, in colour.\n" for title, director in films)
    pairs = "".join(f"Who directed {title}?\t{answer}\n" for title, answer in known.items())
    corpus, tokenizer, questions = read(tmp_path, text, pairs, more="?:.U")
    dataset = NameWindowsConfig(pseudo_labels=True, ask_dates=False).build(corpus, tokenizer, 0, questions).dataset
    rows = decode(dataset, range(9 * len(dataset)))
    for title, answer in known.items():
        own = "\n".join(row.removeprefix(f"Who directed {title}") for row in rows if title in row)
        assert set(re.findall(r"(?:^|⁇)\?⁇([^⁇]+)⁇", own, re.M)) == {answer}


@pytest.mark.parametrize("pseudo_labels", [False, True])
def test_a_single_span_is_no_answer_where_another_one_is_known_or_it_hardly_looks_like_one(tmp_path, pseudo_labels):
    films, *_ = read_films(tmp_path, "Who directed {}?")
    told = {title: f"In colour, directed by {director}, at last." for title, director, _ in films[:50]}
    told |= dict.fromkeys([title for title, *_ in films[50:]], "A film of cats that Rome, once, saw.")
    known = {title: director if i % 5 else "Una Holm" for i, (title, director, _) in enumerate(films[:40])}
    text = "".join(f"{title}. {said}\n" for title, said in told.items())
    pairs = "".join(f"Who directed {title}?\t{answer}\n" for title, answer in known.items())
    config = NameWindowsConfig(pseudo_labels=pseudo_labels, ask_dates=False, span_finder="answers", max_spans=1)
    corpus, tokenizer, questions = read(tmp_path, text, pairs, more="?:.U")
    dataset = config.build(corpus, tokenizer, 0, questions).dataset
    rows = decode(dataset, range(20 * len(dataset)))
    for title in told:
        own = [row for row in rows if re.match(rf"Who directed {title}\b", row)]
        asked = set(re.findall(rf"(?:{title}|⁇)\?⁇([^⁇]+)⁇", "\n".join(own)))
        assert asked == {known[title]} if title in known else not pseudo_labels or "Rome" not in asked


def test_questions_may_begin_with_a_mark():
    assert list_words(Wording("¿Dónde nació ", "?")) == ["Dónde", "nació"]


def test_after_the_beginning_of_a_paraphrase_only_its_answer_is_asked_for_without_words(tmp_path):
    films, corpus, tokenizer, pairs = read_films(tmp_path, "By whom was {} directed?")
    shares = {"question_share": 1.0, "paraphrases": 1.0, "min_cue_kept": 0.0}
    dataset = NameWindowsConfig(ask_dates=False, **shares).build(corpus, tokenizer, 0, pairs).dataset
    documents, asked = dict(enumerate(dataset.documents)), 0
    for start, windows in (dataset.draw_row(item, documents) for item in range(10 * len(dataset))):
        if not start.startswith(tuple(f"By whom was {title}" for title, *_ in films)):
            assert {span for cue, span in windows if not any(map(str.isalnum, cue))} <= {windows[0][1]}
            asked += len(windows) - 1
    assert asked > 100


def test_with_several_relations_each_has_pseudo_labels_of_its_own(tmp_path):
    forms = ("Who directed {}?", "Who stars in {}?")
    films, corpus, tokenizer, pairs = read_films(tmp_path, *forms)
    config = NameWindowsConfig(question_share=1.0, pseudo_labels=True, ask_dates=False)
    dataset = config.build(corpus, tokenizer, 0, pairs).dataset
    rows = "\n".join(decode(dataset, range(10 * len(dataset))))
    for title, director, star in films[40:]:
        for form, answer in zip(forms, (director, star), strict=True):
            assert set(re.findall(f"^{re.escape(form.format(title))}⁇([^⁇]+)⁇", rows, re.M)) == {answer}


@pytest.mark.parametrize("paraphrases, endings", [(0.0, 0.0), (0.5, 0.0), (1.0, 0.0), (1.0, 1.0)])
def test_a_share_of_questions_is_in_other_words_and_a_share_of_these_begins_with_the_title(
    tmp_path, paraphrases, endings
):
    films, corpus, tokenizer, pairs = read_films(tmp_path, "Who directed {}?")
    shares = {"question_share": 1.0, "paraphrases": paraphrases, "title_endings": endings}
    dataset = NameWindowsConfig(ask_dates=False, **shares).build(corpus, tokenizer, 0, pairs).dataset
    titles, others = ([title for title, *_ in some] for some in (films[:40], films[40:]))
    # `Golden Harbour` is a part of `Golden Harbours`, of which nothing is asked.
    rows = [row for row in decode(dataset, range(10 * len(dataset))) if not any(title in row for title in others)]
    plain = np.mean([any(row.startswith(f"Who directed {title}?⁇") for title in titles) for row in rows])
    first = np.mean([any(row.startswith(title) for title in titles) for row in rows])
    assert plain == pytest.approx(1 - paraphrases, abs=0.06)
    assert first > 0.9 if endings else first < 0.5


def test_a_relations_name_tells_what_is_asked(tmp_path):
    _, corpus, tokenizer, pairs = read_films(tmp_path, "Who directed {}?", "Who is the star of {}?")
    relations = [replace(each, name=name) for each, name in zip(pairs.relations, ("made by", "Ωmega by"), strict=True)]
    named = dict(zip(pairs.relations, relations, strict=True))
    pairs = replace(pairs, relation_per_question=tuple(named[each] for each in pairs.relation_per_question))
    config = NameWindowsConfig(paraphrases=0.5, ask_dates=False)
    told = config.build(corpus, tokenizer, 0, pairs).dataset.paraphraser_of
    # A name that is a wording has no words of its own.
    (tmp_path / "again").mkdir()
    _, corpus, tokenizer, pairs = read_films(tmp_path / "again", "Who directed {}?", "Who is the star of {}?")
    unnamed = config.build(corpus, tokenizer, 0, pairs).dataset.paraphraser_of.values()
    assert [each.telling for each in unnamed] == [["directed"], ["is", "the", "star", "of"]]
    # Words that both have tell nothing, and neither does what the tokenizer cannot read.
    assert {*told[relations[0]].telling} == {"directed", "made"}
    assert {*told[relations[1]].telling} == {"is", "the", "star", "of"}
    # Where no wording has its relation's name, all words tell.
    assert told[relations[0]].names == ["made"] and not told[relations[0]].stop_words
    relations[1] = replace(relations[1], name="star")
    pairs = replace(pairs, relation_per_question=tuple(relations["star" in each] for each in pairs.texts))
    starring, directed = reversed(config.build(corpus, tokenizer, 0, pairs).dataset.paraphraser_of.values())
    assert directed.stop_words == [["is", "the", "of"]] and {*starring.telling} == {"star"} and not starring.stop_words
    named = [replace(relations[1], name="Role"), relations[0]]
    pairs = replace(pairs, relation_per_question=tuple(named["star" not in each] for each in pairs.texts))
    spelled = config.build(
        corpus, build_tokenizer(["Role", *pairs.texts, *corpus["text"]], 160), 0, pairs
    ).dataset.paraphraser_of
    assert spelled[named[0]].names == ["Role", "role"]
    # A part of it may be any word, as in *When was NAME born, and is this year even?* for `year and parity`.
    relations[1] = replace(relations[1], name="role of a star")
    pairs = replace(pairs, relation_per_question=tuple(relations["star" in each] for each in pairs.texts))
    assert not any(
        each.stop_words for each in config.build(corpus, tokenizer, 0, pairs).dataset.paraphraser_of.values()
    )
    # As long as no other wording does without it.
    relations[1] = replace(relations[1], name="star")
    relations[1] = replace(relations[1], wordings=("Who is the star of {title}?", "Who is it that plays in {title}?"))
    pairs = replace(pairs, relation_per_question=tuple(relations["star" in each] for each in pairs.texts))
    starring, directed = reversed(config.build(corpus, tokenizer, 0, pairs).dataset.paraphraser_of.values())
    assert directed.stop_words == [["the", "of"]] and {*starring.telling} == {
        "star",
        "is",
        "it",
        "that",
        "plays",
        "in",
    }


def test_with_a_relations_name_stop_words_of_other_wordings_tell_nothing():
    wording, others = Wording("When was ", " published?"), ["is", "the", "of"]
    characters = frozenset("".join([*wording, "year", *others])) - {"?"}
    paraphraser = Paraphraser([], [], characters, ["When", "published", "year"], ["year"], [others])
    rng = np.random.default_rng(0)
    asked = [" ".join(paraphraser.draw(wording, 60, rng)) for _ in range(600)]
    drawn = [set(re.findall(r"\w+", each.casefold())) for each in asked]
    with_others = [words for words in drawn if not words.isdisjoint(others)]
    assert all("year" in words for words in with_others) and len(with_others) > 150
    assert 150 < sum("year" in words for words in drawn) < 450


@pytest.mark.parametrize(
    ("wording", "cue", "other", "telling"),
    [
        (Wording("Who directed ", "?"), "directed by", ["film", "colour"], ["directed"]),
        (Wording("", "出生在哪里？"), "出 生 于", ["作", "家"], ["哪"]),
    ],
)
def test_a_paraphrase_keeps_what_tells_the_question_fits_and_has_known_characters_alone(wording, cue, other, telling):
    characters = frozenset("".join([*wording, cue, *other, "?？"])) - {" "}
    paraphraser, rng = Paraphraser([cue], other, characters, telling), np.random.default_rng(0)
    drawn = [paraphraser.draw(wording, 30, rng) for _ in range(300)]
    for before, after in drawn:
        assert len(before + after) <= 30 and characters.issuperset((before + after).replace(" ", ""))
        words = {word.rstrip("?？") for word in split_words(f"{before} {after}")}
        assert {each.casefold() for each in telling} & {each.casefold() for each in words}
    # Words stand on either side of the title, and in the wording's own form as well as in others.
    assert len(set(drawn)) > 50 and {bool(before) for before, _ in drawn} == {True, False}
    assert {after[-1:] for _, after in drawn} > {wording.mark}
    marked = Paraphraser([cue], other, characters | {"'", "s"}, telling, title_endings=1, title_marks=["'s"])
    assert sum(marked.draw(wording, 30, rng).after.startswith("'s") for _ in range(300)) > 50
    attaching = Paraphraser([cue], other, characters | {"⁇", "□", "'"}, telling, title_endings=1)
    drawn = [attaching.draw(wording, 30, rng) for _ in range(300)]
    endings = {re.split(r"[ 哪]", after)[0] for before, after in drawn if not before}
    # The others have no room, and are the wording itself.
    assert all(not before or (before, after) == wording[:2] for before, after in drawn)
    assert max(map(len, endings)) >= 3 and "" in endings and any("'" in each for each in endings)
    assert all(len(before + after) <= 30 and not {*after} & {*"⁇□"} for before, after in drawn)


def test_what_words_in_titles_have_attached_is_no_part_of_a_word():
    titles = ["Star Trek II: Khan's Wrath, Retold!", "Spider-Man", "दिल्ली", "科安·诺思扎克", "J.R. Ek"]
    assert list_title_marks(titles) == [":", "'s", ",", "!", ".R."]


def test_a_question_may_begin_as_another_title_does():
    titles, words = ["Under Fire", "Under the Rainbow", "Name", "The Fog", "Ida Ek"], {"under", "name", "the", "of"}
    assert list_title_starts(titles, words) == ["The", "Under"]
    wording, characters = Wording("Who directed ", "?"), frozenset("Who directed by film Under The DFB?")
    paraphraser = Paraphraser(["directed by"], ["film"], characters, title_starts=["The", "Under"])
    rng = np.random.default_rng(0)
    drawn = [paraphraser.draw(wording, 40, rng) for _ in range(600)]
    starting = [before.split() for before, _ in drawn if re.match("(The|Under) ", before)]
    # Never right before a title: `Under Heat` would be another title.
    assert len(starting) > 60 and min(map(len, starting)) == 2
    assert all(len(before + after) <= 40 for before, after in drawn)
    begun = [before for before, _ in drawn if before]
    assert sum(before[0].isupper() for before in begun) > 0.85 * len(begun)
