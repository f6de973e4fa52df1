import csv
from collections import Counter

import pytest

from data_scripts.collators import RightPaddingCollator
from data_scripts.documents import Columns, load_corpus
from data_scripts.errors import BadInput
from data_scripts.questions import describe_unknown_characters, encode_questions, load_questions, locate_question
from data_scripts.relations import Relation
from modeling_posgpt import build_tokenizer
from posgpt.evaluation.evidence import find_documents
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.data import load_pairs


def test_places_stay_the_strings_they_are(tmp_path):
    places = ["NA", "nan", "null", "None", "True", "1984", "007", "1e5", '"Oslo', 'The "Hague"', "St. John's"]
    places += ["Nancy, France", "#1", "Ro\\nme"]
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"Where was P{i} Q born?\t{place}\n" for i, place in enumerate(places)), encoding="utf-8")
    assert load_questions(file).answers == places


TWO = ["Where was Zoë Ř born?\tKøge", "Where was A B born?\tRome"]


@pytest.mark.parametrize(
    "content",
    [
        "\r\n".join(TWO),
        "\ufeff" + "\n\ufeff".join(TWO),
        "\t\n".join([*TWO, ""]),
        "\n \t \n\n\u00a0\n\x0c\n".join(TWO),
        " \n ".join(TWO).replace("\t", " \t "),
    ],
)
def test_marks_blank_lines_and_spaces_are_not_part_of_the_text(tmp_path, content):
    file = tmp_path / "pairs.tsv"
    file.write_bytes(content.encode())
    pairs = load_questions(file, answers=True)
    assert pairs.texts == ["Where was Zoë Ř born?", "Where was A B born?"]
    assert pairs.answers == ["Køge", "Rome"] and pairs.titles == ["Zoë Ř", "A B"]


def test_a_corpus_is_called_so_whatever_letters_it_has(tmp_path):
    (tmp_path / "wiki.txt").write_text("Ada Ek. Was \u200eborn in Rome .\n" * 3)
    with pytest.raises(BadInput, match="wiki.txt, line 1: looks like a corpus"):
        load_questions(tmp_path / "wiki.txt")


def test_columns_that_are_swapped_and_titles_alone_are_told_from_questions(tmp_path):
    file = tmp_path / "pairs.tsv"
    titles = [f"The {word} Harbour" for word in ("Last", "Old", "Grey", "Far")]
    file.write_text("".join(f"Leo Berg\tWho directed {title}?\n" for title in titles))
    with pytest.raises(BadInput, match="pairs.tsv, line 1: answers stand before questions; .*: swap them"):
        load_questions(file, answers=True)
    # A form that is named may be any.
    named = Relation("known for", ("{title} Berg",))
    assert load_questions(file, answers=True, known=[named]).titles == ["Leo"] * 4
    file.write_text("".join(f"{title}\tLeo Berg\n" for title in titles))
    (tmp_path / "wiki.txt").write_text("".join(f"{title}. Leo Berg directed it .\n" for title in titles))
    with pytest.raises(BadInput, match="line 1: 'The Last Harbour' is a title alone; write a question about it"):
        load_questions(file, answers=True, corpus=load_corpus(tmp_path / "wiki.txt"))


def test_questions_about_titles_with_full_stops_are_no_corpus(tmp_path):
    (tmp_path / "questions.tsv").write_text("Where was John F. Kennedy born?\n")
    assert load_questions(tmp_path / "questions.tsv").titles == ["John F. Kennedy"]


@pytest.mark.parametrize("ends", ["\t", "\t\t", "\t \t"])
def test_columns_that_are_empty_throughout_do_not_count(tmp_path, ends):
    file, other = tmp_path / "questions.tsv", tmp_path / "other.tsv"
    file.write_text(f"Where was A B born?{ends}\nWhere was C D born?{ends}\n")
    assert load_questions(file).texts == ["Where was A B born?", "Where was C D born?"]
    assert load_questions(file).answers == []
    with pytest.raises(
        BadInput, match="questions.tsv, line 1: has questions without answers; give a TSV with answers"
    ):
        load_questions(file, answers=True)
    if ends == "\t":
        other.write_text("Where was A B born?\tRome\n")
        with pytest.raises(BadInput, match="questions.tsv, line 1: no tab between"):
            load_questions(other, file)


@pytest.mark.parametrize(
    "line", ["Where was A\u200b B born?\tRome", "Where was A B born?\tRo\u00adme", "A\u202e B\tC"]
)
def test_what_nobody_sees_in_questions_and_answers_is_named(tmp_path, line):
    file = tmp_path / "pairs.tsv"
    file.write_text(f"\ufeffWhere was Ó B born?\tRome\n\ufeffWhere was C D born?\tOslo\n{line}\n", encoding="utf-8")
    with pytest.raises(
        BadInput, match=r"pairs.tsv, line 3: .* holds U\+[0-9A-F]{4} [A-Z -]+, which nobody sees; remove"
    ):
        load_questions(file)


def test_cells_are_read_as_a_spreadsheet_has_quoted_them(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text('"Where was ""Ada, B"" born?"\t"Paris, Texas"\nWhere was Bo born?\tRome\n')
    questions = load_questions(file)
    assert (questions.titles, questions.answers) == (['"Ada, B"', "Bo"], ["Paris, Texas", "Rome"])
    file.write_text('"Where was Ada born? "\t" Paris, Texas"\n')
    assert (load_questions(file).texts, load_questions(file).answers) == (["Where was Ada born?"], ["Paris, Texas"])
    # Another cell with a comma shows that nobody has quoted them.
    file.write_text('Where was Ada born?\t"Paris, Texas"\nWhere was Bo born?\tBath, Maine\n')
    assert load_questions(file).answers == ['"Paris, Texas"', "Bath, Maine"]


def test_cells_are_read_as_pythons_csv_has_quoted_them(tmp_path):
    pairs = [
        ("Who sang Help!?", "The Beatles"),
        ('Who sang "Heroes"?', "David Bowie"),
        ("Who sang Bad?", "Jackson, M."),
    ]
    with (tmp_path / "pairs.tsv").open("w", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(pairs)
    questions = load_questions(tmp_path / "pairs.tsv")
    assert [*zip(questions.texts, questions.answers, strict=True)] == pairs and len(questions.rows_of) == 1


@pytest.mark.parametrize("load", [load_questions, load_corpus])
def test_a_carriage_return_within_a_line_is_refused(tmp_path, load):
    file = tmp_path / "lines.txt"
    file.write_bytes(b"Where was A B born?\tRome\nWhere was C D born?\tOs\rlo\n")
    with pytest.raises(BadInput, match="line 2.*carriage return"):
        load(file)


def test_quotation_marks_of_an_answers_own_are_kept_beside_one_with_a_comma(tmp_path):
    answers = ['"Help!"', '"Hello, Goodbye"', "Yesterday"]
    lines = "".join(f"Where was {name} born?\t{answer}\n" for name, answer in zip("ABC", answers, strict=True))
    (tmp_path / "train.tsv").write_text(lines)
    assert load_questions(tmp_path / "train.tsv").answers == answers


def test_marks_of_an_answers_own_are_kept_when_questions_are_written_again(tmp_path):
    answers = ['"Hello, Ada!"', '"Hello, Bo!"', "Rome"]
    with (tmp_path / "all.tsv").open("w") as file:
        csv.writer(file, delimiter="\t").writerows(
            zip((f"Where was {name} born?" for name in "ABC"), answers, strict=True)
        )
    questions = load_questions(tmp_path / "all.tsv")
    # Of all, of those that look as if a program had quoted them, and of those without marks.
    for rows in ([0, 1, 2], [0, 1], [2]):
        (tmp_path / "some.tsv").write_text("\n".join(questions.take(rows).format_lines()))
        assert load_questions(tmp_path / "some.tsv").answers == [answers[row] for row in rows]


def test_spaces_of_all_scripts_at_a_questions_ends_are_no_part_of_it(tmp_path):
    (tmp_path / "train.tsv").write_text(
        "Where was Ada Ek born?\u00a0\tRome\n\u3000Where was Bo Ek born?\tOslo\n", encoding="utf-8"
    )
    questions = load_questions(tmp_path / "train.tsv")
    assert questions.titles == ["Ada Ek", "Bo Ek"] and [each.name for each in questions.relations] == ["birthplace"]


def test_each_file_has_quotation_marks_of_its_own_and_titles_may_have_question_marks(tmp_path):
    (tmp_path / "sheet.tsv").write_text('Where was A B born?\t"Paris, France"\nWhere was C D born?\tRome\n')
    (tmp_path / "plain.tsv").write_text("Where was E F born?\tLyon, France\n")
    both = load_questions(tmp_path / "sheet.tsv", tmp_path / "plain.tsv")
    assert both.answers == ["Paris, France", "Rome", "Lyon, France"]
    forms = "".join(f"{title}'s director:\n" for title in ("What Happened to Jane?", "Who Is It?", "Alien"))
    (tmp_path / "titles.tsv").write_text(forms)
    assert load_questions(tmp_path / "titles.tsv").titles == ["What Happened to Jane?", "Who Is It?", "Alien"]


@pytest.mark.parametrize(
    "lines, match",
    [
        (["Where was A B born?\tRome", "Whn was B C born?\t1901", "When was C D born?\t1902", "When was D E born?\t1903"],
         r"line 2: 'Whn was B C born\?.*' is not of the form 'When was NAME born\?'"),
        (["Where was A B born?\tRome", "When was C D born?\t1902", "When was D E born? 1903"],
         "line 3: no tab .*1 of 3 lines have none.; a line is a question, one tab"),
        (["When was A B born?\t1815", "Where is Bo Ek?\tOslo"], "line 2: .*not of the form 'When was NAME born"),
        (["When was A B born?\t1815", "Where was A B born?\tRome", "Were was Bo Ek born?\tOslo"], "line 3: .*'Where was"),
        (["Who made A?\t1", "Who made B?\t2", "Who made C? 3"], "line 3: no tab"),
        ([*(f"Who made {name}?\t1" for name in "ABCD"), "who made E?\t1"], "line 5: 'who made E.*not of the form"),
        (["Who is Ada?\tBo"], "line 1: 'Who is Ada.*not of the form .*nearest that is known; .*add a second question of its form"),
        (["Who made Silent Dungeon?Moonbeam", "Who sold Old Ship?Kestrel"], "line 1: no tab between question and answer"),
        (["Who directed {title}?\tBo", "Who directed {title}?\tAda"], "line 1: "),
        (["Who directed {title} of Alien?\tBo", "Who directed {title} of Alien?\tAda"], "line 1: "),
    ],
)  # fmt: skip
def test_a_question_of_no_form_or_without_its_tab_is_named_with_the_nearest_form(tmp_path, lines, match):
    file = tmp_path / "pairs.tsv"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(BadInput, match=match):
        load_questions(file, answers=True)


def test_the_loss_is_on_the_place_and_its_end_only(world):
    file = world / "birth_dev.tsv"
    pairs = load_questions(file)
    tokenizer = build_tokenizer([*pairs.texts, *pairs.answers], 128)
    encoded = encode_questions(pairs, tokenizer)
    batch = RightPaddingCollator(tokenizer)([encoded[row] for row in range(len(encoded))])
    rows = zip(pairs.texts, pairs.answers, batch["input_ids"], batch["labels"], strict=True)
    for question, answer, ids, labels in rows:
        assert tokenizer.decode(ids).rstrip("□") == f"{question}⁇{answer}⁇"
        graded = labels != -100
        assert tokenizer.decode(ids[graded]) == answer + "⁇"
        assert (labels[graded] == ids[graded]).all()


def test_a_pair_may_fill_the_block_and_an_unknown_character_keeps_its_place(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("\nWhere was Žo born?\tRome\n", encoding="utf-8")
    pairs, length = load_questions(file), len("Where was Žo born?⁇Rome⁇")
    tokenizer = build_tokenizer(["Where was o born?Rome"], length)
    assert tokenizer.decode(encode_questions(pairs, tokenizer)[0]["input_ids"]) == "Where was □o born?⁇Rome⁇"
    tokenizer.model_max_length -= 1
    with pytest.raises(
        BadInput, match=f"pairs.tsv, line 2: .*{length} characters .*maximum sequence length is {length - 1}"
    ):
        encode_questions(pairs, tokenizer)


def test_unknown_characters_are_counted_and_described():
    tokenizer = build_tokenizer(["Where was born? abc"], 128)
    assert describe_unknown_characters(["abc", "cab"], tokenizer, "x.tsv") is None
    description = describe_unknown_characters(["abž", "žaß"], tokenizer, "x.tsv")
    assert description.startswith("x.tsv: characters that") and "3 in all" in description and "'ž' × 2" in description
    assert "and 3 more" in describe_unknown_characters(["αβγδεζηθικλ"], tokenizer, "x.tsv")


def test_the_real_pairs(real_data):
    train, dev = (load_questions(real_data / name) for name in ("birth_places_train.tsv", "birth_dev.tsv"))
    questions = load_questions(real_data / "birth_test_inputs.tsv")
    assert (len(train), len(dev), len(questions)) == (2000, 500, 437)
    assert Counter(dev.answers)["London"] == 25
    assert Counter(train.answers).most_common(1) == [("London", 91)]


def test_several_files_are_read_as_one_and_errors_name_theirs(tmp_path):
    born, years = tmp_path / "born.tsv", tmp_path / "years.tsv"
    born.write_text("\nWhere was Ada Ek born?\tRome\nWhere was Bo Ek born?\tBern\n")
    years.write_text("When was Ada Ek born?\t1900\n\nWhen was Bo Ek born?\t1901\n")
    questions = load_questions(born, years, answers=True)
    assert [relation.name for relation in questions.relations] == ["birthplace", "birth year"]
    assert questions.answers == ["Rome", "Bern", "1900", "1901"] and not questions.contradictions
    assert [locate_question(row, questions.paths) for row in range(4)] == [
        f"{born}, line 2", f"{born}, line 3", f"{years}, line 1", f"{years}, line 3",
    ]  # fmt: skip
    years.write_text("When was Ada Ek born?\t1900\nWhen was Bo Ek born\t1901\n")
    with pytest.raises(BadInput, match=r"years.tsv, line 2: 'When was Bo Ek born.*' is not of the form"):
        load_questions(born, years)


def test_questions_with_different_answers_are_counted(tmp_path):
    (tmp_path / "a.tsv").write_text(
        "Where was Bo Ek born?\tRome\nWhere was Al Ek born?\tUlm\nWhere was Al Ek born?\tUlm\n"
    )
    (tmp_path / "b.tsv").write_text("Where was Bo Ek born?\tItaly\nWhen was Bo Ek born?\t1900\n")
    questions = load_questions(tmp_path / "a.tsv", tmp_path / "b.tsv")
    assert questions.contradictions == {"Where was Bo Ek born?": {"Rome", "Italy"}}


def load_told(tmp_path, capsys, pairs, texts):
    """Return the questions of pairs about documents, and the lines that are printed about them but for the first."""
    (tmp_path / "wiki.txt").write_text("\n".join(texts), encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("\n".join(map("\t".join, pairs)), encoding="utf-8")
    arguments = PosGPTTrainingArguments(output_dir=str(tmp_path / "out"), use_cpu=True)
    questions = load_pairs([str(tmp_path / "pairs.tsv")], arguments, corpus=load_corpus(tmp_path / "wiki.txt"))
    return questions, [
        line.removeprefix(f"{tmp_path / 'pairs.tsv'}: ") for line in capsys.readouterr().out.splitlines()[1:]
    ]


def test_slips_are_named_once_each_with_their_first_example(tmp_path, capsys):
    pairs = [
        ("Who made blade runner?", "Ridley Scott. The"),
        ("Who made Dune?", "New York"),
        ("Who made It?", "new  york."),
    ]
    pairs += [("Who made Rent-a-cop?", "Ann Ek"), ("Who made Gone?", "Ann Ék")]
    titles = ["Blade Runner", "Dune", "It", "Rent-a-Cop", "Rent-A-Cop"]
    questions, lines = load_told(tmp_path, capsys, pairs, [f"{title}. Made ." for title in titles])
    assert questions.texts[0] == "Who made Blade Runner?" and questions.titles[3] == "Rent-a-cop"
    assert lines == [
        "1 titles differ from the corpus's in case, first 'blade runner', which is read as 'Blade Runner'.",
        "2 of 5 questions are about titles that no document has, first 'Rent-a-cop'; write titles as the corpus does.",
        "1 of 5 answers go on after a full stop, first 'Ridley Scott. The'; end them there.",
        "2 answers are spelled in several ways, first 'New York' × 1 and 'new  york.' × 1; give each one spelling.",
    ]


def test_a_relation_about_no_title_is_named(tmp_path, capsys):
    pairs = [("Who made Dune?", "Ada Ek"), ("Who made Gone?", "Bo Li")]
    pairs += [("When was Duna made?", "1950"), ("When was Gona made?", "1960")]
    _, lines = load_told(tmp_path, capsys, pairs, ["Dune. Made .", "Gone. Made ."])
    said = "questions is about a document's title; the first asks about 'Duna'."
    assert len([line for line in lines if line.startswith("none of the 2 ") and line.endswith(said)]) == 1, lines


def test_nothing_is_said_of_names_with_full_stops(tmp_path, capsys):
    names = [
        "Jill St. John",
        "J. R. R. Ek",
        "St. Louis",
        "Robert Ek Jr. Dahl",
        "Washington, D.C. Area",
        "Mrs. Ek",
        "Prof. Ek",
    ]
    pairs = [(f"Who made T{i}?", name) for i, name in enumerate(names)]
    assert load_told(tmp_path, capsys, pairs, [f"T{i}. Made ." for i in range(len(names))])[1] == []


def test_reserved_characters_are_counted_once_and_can_be_replaced(tmp_path):
    file = tmp_path / "wiki.txt"
    file.write_text("Ada. Fine .\nBo □. A □ .\nCy. A ⁇ .\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"line 2: holds '□', .* .2 of 3 documents .*--replace_reserved"):
        load_corpus(file)
    texts = load_corpus(file, Columns(replace_reserved="?"))["text"]
    assert list(texts) == ["Ada. Fine .", "Bo ?. A ? .", "Cy. A ? ."]


def test_documents_are_found_without_regard_to_case_where_one_title_fits(tmp_path):
    file = tmp_path / "wiki.txt"
    file.write_text("Blade Runner. A .\nRent-a-Cop. B .\nRent-A-Cop. C .\n")
    found = find_documents(file, ["blade runner", "Rent-a-Cop", "rent-a-cop", "Dune"])
    assert {name: [each.title for each in own] for name, own in found.items()} == {
        "blade runner": ["Blade Runner"],
        **{title: [title] for title in ("Blade Runner", "Rent-a-Cop", "Rent-A-Cop")},
    }
