import numpy as np
import pytest
import torch

from data_scripts.objective_config import ObjectiveConfig
from data_scripts.objectives import OBJECTIVES
from data_scripts.questions import load_questions
from data_scripts.relations import BIRTHPLACE, Relation
from data_scripts.span_corruption import compute_longest_cut
from modeling_posgpt import MASK_TOKEN, PAD_TOKEN
from posgpt.training.saved_models import load_model
from studies import recall
from study_helpers import read_rows


class Scribe:
    """Writes what it is told to write after each text, as a model's `generate` does; it ends at a `⁇`."""

    device = "cpu"

    def __init__(self, tokenizer, written):
        self.tokenizer, self.written, self.longest = tokenizer, written, 0

    def generate(self, input_ids, attention_mask, max_new_tokens, do_sample):
        self.longest = max(self.longest, input_ids.shape[1] + max_new_tokens)
        rows = []
        for ids, seen in zip(input_ids, attention_mask.bool(), strict=True):
            new = self.written[self.tokenizer.decode(ids[seen])][:max_new_tokens]
            new = new.partition(MASK_TOKEN)[0] + MASK_TOKEN * (MASK_TOKEN in new)
            rows.append(self.tokenizer.convert_tokens_to_ids(list(new.ljust(max_new_tokens, PAD_TOKEN))))
        return torch.cat([input_ids, torch.tensor(rows)], dim=1)


def test_what_is_written_has_to_begin_with_the_place_whatever_comes_after_it(tiny_pretrained):
    _, tokenizer = load_model(str(tiny_pretrained["rotary"]))
    written = {
        # A model that closes its spans, one that does not, and one that writes on.
        "a in ": ("Rome⁇", "Rome", True),
        "b, long ago, in ": ("Rome and then Oslo", "Rome", True),
        "c was born in ": ("Romeville", "Rome", True),
        "d in ": ("Rom⁇", "Rome", False),
        "e in ": ("⁇Rome", "Rome", False),
        "f in ": ("Oslo⁇", "Rome", False),
        "g in ": ("San Jose", "San Jose", True),
        "a⁇b⁇": ("Rome", "Rome", True),
        "h" * 110: ("It", "It", True),
    }
    scribe = Scribe(tokenizer, {text: new for text, (new, _, _) in written.items()})
    _, places, expected = zip(*written.values(), strict=True)
    assert recall.grade_continuations(scribe, tokenizer, list(written), places).tolist() == list(expected)
    # The long text is continued by its own two characters, not by another place's eight.
    assert scribe.longest == 112
    assert recall.grade_continuations(scribe, tokenizer, [], []).tolist() == []


def test_a_real_model_is_continued_greedily(tiny_pretrained):
    model, tokenizer = load_model(str(tiny_pretrained["learned"]))
    texts = ["Ann", "Ann Berg was", "Ann Berg was born in a town"]
    ids = [model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=5, do_sample=False) for text in texts]
    references = [tokenizer.decode(row[0])[len(text) :] for row, text in zip(ids, texts, strict=True)]
    assert recall.grade_continuations(model, tokenizer, texts, references).all()
    assert not recall.grade_continuations(model, tokenizer, texts, ["\n\n\n\n\n"] * 3).any()


@pytest.mark.parametrize("recipe", ["course", "windows"])
def test_mentions_are_names_and_with_span_corruption_those_that_are_read(tmp_path, recipe):
    # Places that end with the last character that is read, and one later.
    assert compute_longest_cut(128) == 112
    early, late = (f"Berg sang {'x' * (end - len('Ann Berg. Berg sang  in Rome'))} in Rome ." for end in (112, 113))
    (tmp_path / "wiki.txt").write_text(
        f"Ann Berg. {early}\nBob Berg. {late}\nCy Dahl. Dahl left Romeville for Rome, not Rome .\nDi Ek. A rome .\n"
    )
    pairs = "".join(f"{BIRTHPLACE.ask(name)}\tRome\n" for name in ("Ann Berg", "Bob Berg", "Cy Dahl", "Di Ek", "Ed"))
    (tmp_path / "pairs.tsv").write_text(pairs)
    questions, objective = load_questions(tmp_path / "pairs.tsv"), recall.read_objective(recipe)
    prompts, places = recall.build_recall_prompts(tmp_path / "wiki.txt", questions, objective, 128)
    expected = {
        "course": [
            f"Ann Berg. {early}".replace("Rome", MASK_TOKEN).removesuffix(" ."),
            "Cy Dahl. Dahl left Romeville for ⁇, not Rome .",
        ],
        "windows": [
            f"Where was Ann Berg sang {'x' * early.count('x')} in?",
            f"Where was Bob Berg sang {'x' * late.count('x')} in?",
            # The first of two.
            "Where was Cy Dahl left Romeville for?",
        ],
    }[recipe]
    assert prompts == expected and places == ["Rome"] * len(expected)
    # The prompt, its `⁇` and the place fit the maximum sequence length.
    assert all(len(prompt) + 1 + len(place) <= 128 for prompt, place in zip(prompts, places, strict=True))


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, "Where was Ann Berg b 0 in?"),
        ({"plain_cues": False}, "Where was Ann Berg May 1951 in?"),
        ({"max_cue_words": 0}, "Where was Ann Berg?"),
        ({"max_cue_words": 1}, "Where was Ann Berg in?"),
        ({"window_wording": "document", "plain_cues": False}, "Ann Berg. May 1951 in"),
        ({"recipe": "course"}, "Ann Berg. Berg (b. 3 May 1951 in ⁇) met Bo in Nice ."),
    ],
)
def test_recall_is_asked_for_in_the_words_that_were_read(tmp_path, options, expected):
    (tmp_path / "wiki.txt").write_text("Ann Berg. Berg (b. 3 May 1951 in Rome) met Bo in Nice .\nNo Place. Lost .\n")
    pairs = "".join(f"{BIRTHPLACE.ask(name)}\tRome\n" for name in ("Ann Berg", "No Place"))
    (tmp_path / "pairs.tsv").write_text(pairs)
    questions = load_questions(tmp_path / "pairs.tsv", answers=True)
    objective = recall.read_objective(**{"recipe": "windows", "keep_names": False} | options)
    assert recall.build_recall_prompts(tmp_path / "wiki.txt", questions, objective, 128) == ([expected], ["Rome"])


def test_an_objective_of_ones_own_says_how_it_asks(run, world, tiny_pretrained, tmp_path, monkeypatch):
    class Cloze(ObjectiveConfig):
        name = "cloze"
        reads_text = True

        def build_prompt(self, relation, title, text, start, end, max_length):
            return text[:start] if end <= 40 else None

    monkeypatch.setitem(OBJECTIVES, "cloze", Cloze)
    (tmp_path / "mine.yaml").write_text("pretrain: {objective: cloze}\n")
    arguments = ["--data_dir", world, "--models", tiny_pretrained["rotary"], "--output_dir", tmp_path / "out"]
    run(recall, *arguments, "--recipe", tmp_path / "mine.yaml")
    (counts,) = [
        row for name, row in read_rows((tmp_path / "out" / "table.md").read_text()).items() if name != "model"
    ]
    every = (world / "birth_places_train.tsv").read_text().count("\n")
    assert counts[0].startswith(f"0 of {every} ") and 0 < int(counts[1].split()[2]) < every


def test_each_relation_is_asked_for_its_own_answer_of_a_title(tmp_path):
    (tmp_path / "wiki.txt").write_text(
        "Ada Berg. Berg was born in Rome and died in Oslo .\nBo Ek. Ek was born in Bern and died in Bern .\n"
    )
    lines = ["Where was Ada Berg born?\tRome", "Where did Ada Berg die?\tOslo"]
    lines += ["Where was Bo Ek born?\tBern", "Where did Bo Ek die?\tBern"]
    (tmp_path / "both.tsv").write_text("\n".join(lines))
    questions = load_questions(tmp_path / "both.tsv")
    prompts, answers = recall.build_recall_prompts(
        tmp_path / "wiki.txt", questions, recall.read_objective("windows"), 128
    )
    assert list(zip(answers, prompts, strict=True)) == [
        ("Rome", "Where was Ada Berg was born in?"),
        ("Oslo", "Where did Ada Berg and died in?"),
        ("Bern", "Where was Bo Ek was born in?"),
        ("Bern", "Where did Bo Ek and died in?"),
    ]


def test_cues_end_as_the_questions_do():
    relation = Relation("出生地", ("{title}出生于哪里？",))
    objective = recall.read_objective("windows")
    assert objective.build_prompt(relation, "陈伟", "陈伟. 生于 伦敦", 7, 9, 128) == "陈伟生于？"


def test_every_model_has_a_row(run, world, tiny_pretrained, tmp_path):
    models = [tiny_pretrained[name] for name in ("learned", "rotary")]
    arguments = ["--data_dir", world, "--output_dir", tmp_path / "out", "--models", *models]
    printed = run(recall, *arguments)
    table = (tmp_path / "out" / "table.md").read_text()
    assert table in printed and "birth_places_train.tsv, objective span_corruption:" in table
    rows = read_rows(table)
    assert rows.pop("model") == ["answered when asked", "recalled as read", "continued as read"]
    assert list(rows) == list(map(str, models))
    places = (world / "birth_places_train.tsv").read_text().count("\n")
    for asked, recalled, continued in rows.values():
        # After four training steps, nothing is known.
        assert asked == f"0 of {places} (0.0%)" and recalled.startswith("0 of ")
        assert recalled.split()[2] == continued.split()[2] and 0 < int(recalled.split()[2]) <= places

    held_out = ["--questions_file", world / "birth_dev.tsv", "--recipe", "windows"]
    rows = read_rows(run(recall, *arguments, *held_out))
    assert rows.pop("model") == ["answered when asked", "recalled as read"]
    assert rows[str(models[0])][0] == "0 of 17 (0.0%)"


def test_the_share_of_nobody_is_left_out():
    assert recall.describe_share(np.array([True, False, True, True])) == "3 of 4 (75.0%)"
    assert recall.describe_share(np.array([], dtype=bool)) == "0 of 0"


@pytest.mark.parametrize(
    "options, match",
    [
        (["--models", "no/where"], "no/where: no PosGPT could be loaded"),
        (["--recipe", "none"], "none: no such recipe"),
        (["--questions_file", "LONG"], "a question has 217 characters .* no room for an answer"),
        (["--questions_file", "none.tsv"], "none.tsv: no such file"),
    ],
)
def test_bad_input_is_refused_in_one_line(run, world, tiny_pretrained, tmp_path, options, match):
    (tmp_path / "long.tsv").write_text(f"{BIRTHPLACE.ask('A' * 201)}\tRome\n")
    known = ["--models", tiny_pretrained["rotary"], "--data_dir", world, "--output_dir", tmp_path / "out"]
    options = [tmp_path / "long.tsv" if option == "LONG" else option for option in options]
    with pytest.raises(SystemExit, match=f"error: .*{match}") as stop:
        run(recall, *known, *options)
    assert "\n" not in stop.value.code and not (tmp_path / "out").exists()
