import shutil

import pytest

from data_scripts.questions import load_questions
from data_scripts.relations import BIRTHPLACE, Relation
from data_scripts.span_corruption import compute_longest_cut
from modeling_posgpt import MASK_TOKEN
from posgpt.training.saved_models import load_model
from studies import recall
from study_helpers import read_rows


def test_texts_are_continued_greedily_and_what_comes_after_the_place_does_not_count(tiny_pretrained):
    model, tokenizer = load_model(str(tiny_pretrained["learned"]))
    texts = ["Ann", "Ann Berg was", "Ann Berg was born in a town", "h" * 110]
    ids = [model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=8, do_sample=False) for text in texts]
    written = [tokenizer.decode(row[0])[len(text) :] for row, text in zip(ids, texts, strict=True)]
    # Places of different lengths; a long text is continued by no more than its own place's.
    for ends in ([8, 5, 1, 4], [3, 8, 8, 2]):
        references = [text[:end] for text, end in zip(written, ends, strict=True)]
        assert recall.grade_continuations(model, tokenizer, texts, references).all()
    wrong = [written[0], "\n" + written[1][1:], written[2][1:] + "\n", "\n"]
    assert recall.grade_continuations(model, tokenizer, texts, wrong).tolist() == [True, False, False, False]
    assert recall.grade_continuations(model, tokenizer, [], []).tolist() == []


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
    prompts, places, *_ = recall.build_recall_prompts(tmp_path / "wiki.txt", questions, objective, 128)
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
    assert recall.build_recall_prompts(tmp_path / "wiki.txt", questions, objective, 128)[:2] == ([expected], ["Rome"])


@pytest.mark.parametrize("wording", ["question", "document"])
def test_what_does_not_fit_is_not_asked_for(tmp_path, wording):
    (tmp_path / "wiki.txt").write_text(
        "Ann Berg. Berg lived in Rome .\nBo Ek. Ek lived extraordinarily long in Rome .\n"
    )
    (tmp_path / "pairs.tsv").write_text("".join(f"{BIRTHPLACE.ask(name)}\tRome\n" for name in ("Ann Berg", "Bo Ek")))
    questions = load_questions(tmp_path / "pairs.tsv", answers=True)
    objective = recall.read_objective(recipe="windows", window_wording=wording)
    for length, count in ((128, 2), (34, 1), (14, 0)):
        assert len(recall.build_recall_prompts(tmp_path / "wiki.txt", questions, objective, length)[0]) == count


def test_each_relation_is_asked_for_its_own_answer_of_a_title(tmp_path):
    (tmp_path / "wiki.txt").write_text(
        "Ada Berg. Berg was born in Rome and died in Oslo .\nBo Ek. Ek was born in Bern and died in Bern .\n"
    )
    lines = ["Where was Ada Berg born?\tRome", "Where did Ada Berg die?\tOslo"]
    lines += ["Where was Bo Ek born?\tBern", "Where did Bo Ek die?\tBern"]
    (tmp_path / "both.tsv").write_text("\n".join(lines))
    questions = load_questions(tmp_path / "both.tsv")
    prompts, answers, relations, titles = recall.build_recall_prompts(
        tmp_path / "wiki.txt", questions, recall.read_objective("windows"), 128
    )
    assert relations == ["birthplace", "place of death"] * 2 and titles == 2 * ["Ada Berg"] + 2 * ["Bo Ek"]
    assert list(zip(answers, prompts, strict=True)) == [
        ("Rome", "Where was Ada Berg was born in?"),
        ("Oslo", "Where did Ada Berg and died in?"),
        ("Bern", "Where was Bo Ek was born in?"),
        ("Bern", "Where did Bo Ek and died in?"),
    ]


def test_an_answer_is_left_out_where_the_document_may_mean_another_fact(tmp_path):
    (tmp_path / "wiki.txt").write_text("Ada Berg. Berg (from Oslo ?) was born in Rome and died in Oslo .\n")
    (tmp_path / "both.tsv").write_text("Where was Ada Berg born?\tRome\nWhere did Ada Berg die?\tOslo\n")
    questions = load_questions(tmp_path / "both.tsv")
    _, answers, relations, _ = recall.build_recall_prompts(
        tmp_path / "wiki.txt", questions, recall.read_objective("windows"), 128
    )
    assert (answers, relations) == (["Rome"], ["birthplace"])


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
    # What a model says that it was pretrained with takes precedence.
    assert "birth_dev.tsv, objective span_corruption:" in run(recall, *arguments, *held_out)
    # A model that does not say how it was pretrained.
    other = shutil.copytree(models[0], tmp_path / "other", ignore=shutil.ignore_patterns("run.json"))
    printed = run(recall, *arguments[:-2], other, *held_out)
    assert f"{other}: does not say how it was pretrained, so the objective is that of 'windows'" in printed
    rows = read_rows(printed)
    assert rows.pop("model") == ["answered when asked", "recalled as read"]
    assert rows[str(other)][0] == "0 of 17 (0.0%)"


@pytest.mark.parametrize(
    "options, match",
    [
        (["--models", "no/where"], "no/where: no PosGPT could be loaded"),
        (["--recipe", "none"], "none: no such recipe"),
        (["--questions_file", "none.tsv"], "none.tsv: no such file"),
    ],
)
def test_bad_input_is_refused_in_one_line(run, world, tiny_pretrained, tmp_path, options, match):
    known = ["--models", tiny_pretrained["rotary"], "--data_dir", world, "--output_dir", tmp_path / "out"]
    with pytest.raises(SystemExit, match=f"error: .*{match}") as stop:
        run(recall, *known, *options)
    assert "\n" not in stop.value.code and not (tmp_path / "out").exists()
