"""Column files become the rows of tagging tasks: entities and semantic roles."""

import json

import pytest

from ptrun.errors import UserError
from tests.importing.data.original import imported, load, task
from tests.tiers import tiered

IOB1 = """-DOCSTART- -X- O O

Ann NNP I-NP I-PER
Lee NNP I-NP I-PER
Bob NNP I-NP B-PER
met VBD I-VP O
Oslo NNP I-NP I-ORG
Rome NNP I-NP I-LOC

EU NNP I-NP I-ORG
"""
SPANS = """#begin document (a/b); part 000
x 0 0 Ann NNP * - - - - (PERSON) (ARG0*) (ARG0*) -
x 0 1 met VBD * meet 01 1 - * (V*) * -
x 0 2 Bob NNP * - - - - (PERSON* (ARG1* (ARG1* (0)
x 0 3 Lee NNP * - - - - *) *) *) -
x 0 4 hit VBD * hit 01 1 - * * (V*) -

x 0 0 Yes UH * - - - - * -
#end document
"""
ROLES = ("--words", "4", "--roles", "12:-2")
PUSHED = "1 Ann met Bob . ||| B-A0 B-V B-A1 O\n\n0 Go ! ||| B-V O\n"
NAMES = ("train.txt", "valid.txt", "test.txt")


def write(folder, text, names=NAMES):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def read(name, source, *options):
    """Return a task over what the command makes of a folder."""
    out = source.parent / "out"
    return task(name, imported("conll", source, out, "--task", name, *options))


FORMS = [
    (NAMES, lambda text: text),
    (("eng.train", "eng.testa", "eng.testb"), str.rstrip),
    (("x.train.tsv", "x-dev.tsv", "test"), lambda text: text.replace(" ", "\t")),
    (NAMES, lambda text: text.replace("\n", "\r\n").replace(" ", "  ")),
]


@pytest.mark.parametrize(("names", "form"), tiered(FORMS, lambda names, form: names is NAMES))
def test_iob1_becomes_iob2(tmp_path, names, form):
    data = read("conll03", write(tmp_path / "c", form(IOB1), names))
    for part in ("train", "dev", "test"):
        first, second = data.load(part)
        assert first.fields["tokens"] == ["Ann", "Lee", "Bob", "met", "Oslo", "Rome"]
        assert first.target == ["B-PER", "I-PER", "B-PER", "O", "B-ORG", "B-LOC"]
        assert second.target == ["B-ORG"] and (first.id, second.id) == ("0", "1")


def test_columns_and_files_can_be_named(tmp_path):
    text = "#doc 5\n0\tAnn\tB-Peop\t['N', 'Kill']\n1\tin\tO\t['N']\n#doc 6\n0\tOslo\tB-Loc\t['N']\n"
    source = write(tmp_path / "c", text, ("train.txt", "a.txt", "test.txt", "test.old"))
    options = ("--words", "2", "--tags", "3")
    with pytest.raises(UserError, match=r"no file for dev among a.txt, test.old.*type --dev FILE"):
        read("conll04", source, *options)
    options += ("--dev", str(source / "a.txt"))
    with pytest.raises(UserError, match=r"several files for test among test.old, test.txt; type"):
        read("conll04", source, *options)
    data = read("conll04", source, *options, "--test", str(source / "test.txt"))
    assert [e.target for e in data.load("dev")] == [["B-Peop", "O"], ["B-Loc"]]
    assert data.load("test")[0].fields["tokens"] == ["Ann", "in"]


def test_words_keep_spaces_that_are_no_separators(tmp_path):
    data = read("conll03", write(tmp_path / "c", "10\u00a0000 CD O\n\u2028x NN B-PER\n"))
    assert data.load("train")[0].fields["tokens"] == ["10\u00a0000", "\u2028x"]


def test_a_task_of_the_users_own_is_imported_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ptrun_conf" / "task").mkdir(parents=True)
    (tmp_path / "ptrun_conf" / "task" / "genes.yaml").write_text(
        "_target_: ptrun.task.tagging.Tagging\nname: genes\nversion: 1\nsource: {folder: genes}\n"
        "splits: {train: train, dev: validation, test: null}\n"
        "tokens: words\ntags: marks\nentities: [GENE]\n"
    )
    source = write(tmp_path / "c", "B-GENE\tp53\nO\tbinds\n", ("train.tsv", "dev.tsv"))
    (example,) = read("genes", source, "--words", "-1", "--tags", "1").load("dev")
    assert example.fields == {"words": ["p53", "binds"]} and example.target == ["B-GENE", "O"]


def test_roles_are_read_from_the_lines_of_ptuning_v2(tmp_path):
    names = ["train", "devel", "test.wsj", "test.brown"]
    source = write(tmp_path / "c", PUSHED, [f"conll05.{name}.txt" for name in names])
    test = str(source / "conll05.test.brown.txt")
    first, second = read("conll05_brown", source, "--test", test).load("test")
    assert first.fields == {"tokens": ["Ann", "met", "Bob", "."], "predicate": "met"}
    assert first.target == ["B-A0", "B-V", "B-A1", "O"] and second.fields["predicate"] == "Go"


def test_roles_and_entities_are_read_from_brackets_in_a_tree_of_files(tmp_path):
    """CoNLL-2012: a column for each predicate from 12 to the last but one, entities in 11."""
    for split in ("train", "development", "test"):
        write(tmp_path / "data" / split / "annotations", SPANS, ("a.gold_conll", "readme"))
    first, second = read("conll12", tmp_path / "data", *ROLES).load("dev")
    assert (first.fields["predicate"], second.fields["predicate"]) == ("met", "hit")
    assert first.target == ["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "O"]
    assert second.target == ["B-ARG0", "O", "B-ARG1", "I-ARG1", "B-V"]
    named, _ = read("ontonotes5", tmp_path / "data", "--words", "4", "--tags", "11").load("dev")
    assert named.target == ["B-PERSON", "O", "B-PERSON", "I-PERSON", "O"]


OTHER = [
    ("conll03", '{"tokens": ["Ann"]}\n', (), r"train.txt:1: '\[\"Ann\"\]}' is no tag"),
    ("conll03", IOB1, ("--tags", "2"), r"(?s)train.txt:3: 'NNP' is no tag; .* --tags"),
    ("conll03", IOB1, ("--tags", "5"), "train.txt:3: 'Ann NNP I-NP I-PER' has 4 columns, so none"),
    ("conll03", IOB1.replace("PER", "Peop"), (), "train.txt:3: 'I-Peop' is of no type .*PER, ORG"),
    ("conll03", IOB1.replace("Lee NNP", "Lee"), (), "train.txt:4: 'Lee I-NP I-PER' has 3 columns"),
    ("conll03", "-DOCSTART- O\n\n", (), "no examples in it; 0 rows"),
    ("conll12", SPANS, (), r"train.txt:2: no \|\|\|. For files of columns .*--roles 12:-2"),
    ("conll12", SPANS.replace("(V*) *", "* *"), ROLES, r"train.txt:2: column 12 .* no \(V\*\)"),
    ("conll12", SPANS.replace("*) *) -", "* *) -"), ROLES, r"train.txt:6: span \(ARG1\* has no"),
    ("conll12", SPANS, ("--roles", "4:-2"), "train.txt:2: 'Ann' opens or closes no span"),
    ("conll12", PUSHED.replace("1 Ann", "4 Ann"), (), "train.txt:1: predicate '4', 4 words and 4"),
    ("conll12", PUSHED.replace("B-V O", "B-V"), (), "train.txt:3: predicate '0', 2 words and 1"),
    ("rte", IOB1, (), "--task rte: no task of words and tags"),
    ("conl03", IOB1, (), "task=conl03: unknown; did you mean 'conll03'"),
]


@pytest.mark.parametrize(
    ("name", "text", "options", "words"), tiered(OTHER, lambda *case: case in OTHER[:2])
)
def test_another_form_is_named_and_nothing_is_written(tmp_path, name, text, options, words):
    with pytest.raises(UserError, match=words):
        read(name, write(tmp_path / "c", text), *options)
    assert not [file for file in (tmp_path / "out").rglob("*") if file.is_file()]


UD = """# text = Blood type O
# newpar
1|The|the|DET|DT|_|2|det|_|_
2-3|don't|_|_|_|_|_|_|_|_
2|do|do|AUX|VB|_|0|root|_|_
3|not|not|PART|RB|_|2|x|_|_
4|10 0|_|NUM|CD|_|_|_|_|_
4.1|_|_|_|_|_|_|_|_|_

# text = #
1|#|#|SYM|_|_|_|_|_|_

1|a|a|_|_|_|_|_|_|_

"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def new(file, *options, text=None):
    """Return the words and tags of a new task, from a file of the text three times."""
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    out = imported("conll", file, file.parent / "out", "--task", "mine", *options)
    rows = [row for part in sorted((out / "mine").iterdir()) for row in load(part)]
    return sorted([*row.values()][1:] for row in rows)


def test_conll_u_gives_words_with_their_parts_of_speech(project, caplog):
    text = "".join(UD.replace("|", "\t").replace("The", word) for word in ("The", "A"))
    first = ["DET", "AUX", "PART", "NUM"]
    assert new(project / "a.conllu", text=text) == [
        [["#"], ["SYM"]],
        [["#"], ["SYM"]],
        [["A", "do", "not", "10 0"], first],
        [["The", "do", "not", "10 0"], first],
    ]
    assert "a.conllu: 6 rows, 2 left out: a word without a tag (_ in column 4" in caplog.text
    assert "2 left out: a multiword line (2-3); 2 left out: an empty node (4.1)" in caplog.text
    yaml = (project / "ptrun_conf/task/mine.yaml").read_text()
    assert "tagging.Tags" in yaml and 'labels: ["AUX", "DET", "NUM", "PART", "SYM"]' in yaml
    assert task("mine", project / "out").load("train")[0].target


KAGGLE = (
    "Sentence #,Word,POS,Tag\nSentence: 1,Zoë,NNP,B-per\n"
    ',"""",``,O\n,",",COMMA,O\nSentence: 2,NA,NN,B-per\n,null,NN,I-per\nSentence: 3,x,NN,O\n'
)
ROWS = [
    [["NA", "null"], ["B-per", "I-per"]],
    [["Zoë", '"', ","], ["B-per", "O", "O"]],
    [["x"], ["O"]],
]
TABLES = {
    "Kaggle": (KAGGLE, []),
    "pandas' index": (
        ',sentence_id,words,labels\n0,7,Zoë,B-per\n1,7,"""",O\n2,7,",",O\n3,8,NA,B-per\n'
        "4,8,null,I-per\n5,9,x,O\n",
        [],
    ),
    "blank lines": (
        'token\ttag\nNA\tB-per\nnull\tI-per\n\nZoë\tB-per\n"\tO\n,\tO\n\nx\tO\n',
        ["--quoting", "none"],
    ),
    "blank rows": (
        'w;t\nNA;B-per\nnull;I-per\n;\nZoë;B-per\n"""";O\n,;O\n;\nx;O\n',
        ["--words", "w", "--tags", "2"],
    ),
    "JSON lines": (
        "".join(
            json.dumps({"sentence_id": i, "word": word, "label": tag}) + "\n"
            for i, (words, tags) in enumerate(ROWS)
            for word, tag in zip(words, tags, strict=True)
        ),
        [],
    ),
}


@pytest.mark.parametrize(("text", "options"), TABLES.values(), ids=TABLES)
def test_tables_with_one_word_a_row(project, text, options):
    suffix = "jsonl" if text[0] == "{" else "csv"
    assert new(project / f"a.{suffix}", *options, text=text) == ROWS


def test_an_encoding_is_an_option_of_the_import(project):
    data = KAGGLE.encode("latin-1")
    with pytest.raises(UserError, match=r"import: --encoding \.\.\.\): .*cp1252 if it says"):
        new(project / "a.csv", text=data)
    assert new(project / "a.csv", "--encoding", "cp1252") == ROWS
    with pytest.raises(UserError, match="encoding='x': unknown"):
        new(project / "a.csv", "--encoding", "x")


def test_another_column_of_a_table_is_named(project):
    rows = new(project / "a.csv", "--tags", "POS", text=KAGGLE)
    assert [tags for _, tags in rows] == [["NN", "NN"], ["NNP", "``", "COMMA"], ["NN"]]


WRONG = {
    "word,tag\na,O\nb,O\n": ([], "no line is blank, so name the column .* --sentence NAME: one of"),
    "word,tag,sent\na,O,1\nb,O,2\nc,O,1\n": ([], r"a.csv:4: sentence '1' was above.*Sort"),
    "word,pos,sent\na,O,1\n": ([], "name the column, --tags NAME: one of word, pos, sent"),
    '{"tokens": ["a"], "ner_tags": ["O"]}\n': ([], r"task.text=tokens task.label=ner_tags$"),
    "a,b\nc,O\n": (["--words", "x"], "name the column, --words NAME: one of a, b"),
    "w PER\nw O\n\nw O\n\nx O\n": ([], "a.csv:1: 'PER' is no tag; expected O, B-TYPE"),
    "a,B-X\nb,O\n": ([], r"a.csv:1: 'a,B-X' is one column.*A CSV names its columns"),
}


@pytest.mark.parametrize(("text", "case"), WRONG.items())
def test_a_table_without_its_columns_is_refused(project, text, case):
    options, told = case
    with pytest.raises(UserError, match=told):
        new(project / f"a.{'jsonl' if text[0] == '{' else 'csv'}", *options, text=text)
    assert not (project / "out").exists()
