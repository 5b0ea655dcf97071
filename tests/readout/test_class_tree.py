"""Class words down a tree: rows, loss, ways down, one level as ordinary DPT, 200 classes."""

import csv
import itertools
import json

import pytest
import torch
from torch.nn import functional

from ptrun.config import identity
from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.dpt import DPT
from ptrun.pattern.pattern import read_pvp
from ptrun.readout.base import collate
from ptrun.readout.class_tree import ClassTree, paths, read_tree
from ptrun.readout.class_words import ClassWords
from ptrun.types import Example
from tests.readings import method_of, reading, readout_for
from tests.readout.reading import CPU, answers, given, read, renamed
from tests.small_runs import engine, member, sst2

WORDS = {"dull": ["dull"], "bright": ["bright"], "far": ["xyz"], "oslo": ["Oslo"], "rome": ["Rome"]}
TREE = {"film": ["dull", "bright"], "saw": {"far": None, "in": ["oslo", "rome"]}}
PATTERN = "{~sentence} a plot {words|commas}."
OPTIONS = [
    {},
    {"share": "sum"},
    {"direction": "sigma", "bias": True},
]


def pvp():
    return read_pvp("own", {"pattern": PATTERN, "words": WORDS, "rule": "first"})


@pytest.fixture
def data(data_dir):
    """Return sentences of five classes."""
    made = sst2(data_dir)
    made.labels = list(WORDS)
    made.pvps = {"own": {"pattern": PATTERN, "words": WORDS, "rule": "first"}}
    return made


def five(data):
    """Return an example of each class, twice."""
    examples = renamed(data.load("train"), 10)
    pairs = zip(examples, itertools.cycle(WORDS), strict=False)
    return [Example(e.id, e.fields, label) for e, label in pairs]


def tree_of(backbone, data, tree=TREE, **options):
    made = ClassTree(backbone, data, pvp(), read_tree(tree, list(WORDS)), **options)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_()
    return made


def texts(readout, features):
    tokens = readout.backbone.tokenizer()
    return [tokens.decode(row.ids) for row in features.rows]


def test_a_class_is_taught_at_each_node_on_the_way_to_it(tiny, data):
    readout = tree_of(tiny("electra"), data)
    example = Example("1", {"sentence": "Ann saw a film"}, "rome")
    (taught,) = readout.teaching([example], 128)
    features = readout.encode([taught], 64)[0]
    assert texts(readout, features) == [
        "[CLS] Ann saw a film a plot film, saw. [SEP]",
        "[CLS] Ann saw a film a plot xyz, in. [SEP]",
        "[CLS] Ann saw a film a plot Oslo, Rome. [SEP]",
    ]
    assert features.targets == [0, 1, 0, 1, 0, 1]
    read_at = [[row.ids[i] for i in row.reads] for row in features.rows]
    tokens = readout.backbone.tokenizer().convert_ids_to_tokens
    assert [tokens(ids) for ids in read_at] == [["film", "saw"], ["x", "in"], ["Oslo", "Rome"]]


def test_what_is_asked_shows_nothing_of_its_class(tiny, data):
    readout = tree_of(tiny("electra"), data)
    known, unknown = (
        readout.encode([Example("1", {"sentence": "Ann saw a film"}, target)], 64)[0]
        for target in ("rome", None)
    )
    assert known.rows == unknown.rows and known.facts == unknown.facts
    assert texts(readout, known) == ["[CLS] Ann saw a film a plot film, saw. [SEP]"]
    assert known.facts == json.loads(json.dumps(known.facts))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_loss_is_over_the_children_of_all_nodes_on_the_way(tiny, data, options):
    readout = tree_of(tiny("electra"), data, **options)
    examples = five(data)
    with torch.no_grad():
        batch, output = read(readout, readout.teaching(examples, 128))
    total, z = 0.0, iter(output.logits.flatten())
    for example in examples:
        node = read_tree(TREE, list(WORDS))
        at = 0
        for name in paths(node)[example.target]:
            place = readout.nodes[at]
            for i, child in enumerate(node):
                own = next(z) + (place.bias[i].item() if options.get("bias") else 0)
                score = own.sigmoid() if options.get("direction") else 1 - own.sigmoid()
                times = len(node) if options.get("share") == "sum" else 1
                right = torch.tensor(float(child == name))
                total += times * float(functional.binary_cross_entropy(score, right))
            at, node = readout.below[at].get(name), node[name]
    assert next(z, None) is None
    assert readout.loss(output, batch).item() == pytest.approx(total, rel=1e-5)


@torch.no_grad()
def centre(node, examples):
    """Let a node's bias be such that no child wins everywhere, as untrained ones do."""
    batch, output = read(node, examples)
    node.bias.zero_()
    node.bias.copy_(node.odds(output, batch).mean(dim=0))


def brute(readout, example, tree, node=0):
    """Return the score of each leaf below a node, the library of rows asked one by one."""
    own = readout.nodes[node]
    batch = collate(own.encode([example], 64), None, CPU)
    with torch.no_grad():
        odds = own.odds(own.backbone.forward(given(own, batch)), batch)[0]
    scores = dict(zip(own.labels, odds.double().sigmoid().tolist(), strict=True))
    found = {}
    for name, below in tree.items():
        on = readout.below[node].get(name)
        rest = {name: 1.0} if below is None else brute(readout, example, below, on)
        found |= {label: scores[name] * score for label, score in rest.items()}
    return found


def greedy(readout, example, tree, node=0):
    own = readout.nodes[node]
    batch = collate(own.encode([example], 64), None, CPU)
    with torch.no_grad():
        best = own.decode(own.backbone.forward(given(own, batch)), batch)[0].value
    return (
        best
        if tree[best] is None
        else greedy(readout, example, tree[best], readout.below[node][best])
    )


@pytest.mark.parametrize("beam", [1, 2, 9])
def test_the_best_ways_are_followed_whoever_shares_the_passes(tiny, data, beam):
    """A beam of all is the best product of scores; of one, the best child at each node."""
    backbone = tiny("electra")
    own = reading("class_words", tree=TREE, beam=beam, bias=True)
    one, two = (DPT(backbone, data, own) for _ in range(2))
    one.tunes_backbone = two.tunes_backbone = False  # so that they can share
    examples = five(data) + renamed(data.load("test"), 6)
    for own, other in zip(one.readout.nodes, two.readout.nodes, strict=True):
        centre(own, examples)
        other.load_state_dict(own.state_dict())
    features = one.encode(examples)
    whole = answers(backbone, [one], [features], 10_000)[0]
    tree = read_tree(TREE, list(WORDS))
    with_all = [brute(one.readout, e, tree) for e in examples]
    if beam == 1:
        assert whole == [greedy(one.readout, e, tree) for e in examples]
    if beam == 9:
        assert whole == [max(scores, key=scores.get) for scores in with_all]
    assert len(set(whole)) > 2
    assert answers(backbone, [one], [features[::-1]], 1)[0] == whole[::-1]
    shared = answers(backbone, [one, two], [features, features[3:][::-1]], 300)
    assert shared == [whole, whole[3:][::-1]]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_tree_of_one_level_is_ordinary_class_words(tiny, data, options):
    backbone, order = tiny("electra"), list(WORDS)[::-1]
    torch.manual_seed(1)
    tree = tree_of(backbone, data, order, **options)
    flat = ClassWords(backbone, data, pvp(), order=order, **options)
    if options.get("bias"):
        with torch.no_grad():
            flat.bias.copy_(tree.nodes[0].bias)
    examples = five(data)
    (ours, said), (theirs, also) = read(tree, tree.teaching(examples, 128)), read(flat, examples)
    assert [f.rows for f in ours.features] == [f.rows for f in theirs.features]
    assert torch.equal(ours.targets, theirs.targets) and torch.equal(said.logits, also.logits)
    assert torch.equal(tree.loss(said, ours), flat.loss(also, theirs))
    asked, seen = read(tree, examples)
    assert tree.decode(seen, asked) == flat.decode(also, theirs)


def test_a_tree_of_one_level_learns_bit_for_bit_as_ordinary_dpt(tiny, data, monkeypatch):
    """Asked for by configuration it is ordinary DPT; made by force, it learns the same."""

    examples = five(data)

    def learned(readout=None, **keys):
        def make(backbone, task):
            method = DPT(backbone, task, reading("class_words", **keys))
            if readout:
                method.readout = readout(backbone)
                taught = method.readout.teaching(examples, 128)
                monkeypatch.setattr(data, "load", {"train": taught, "dev": examples}.get)
            return method

        monkeypatch.setattr(data, "load", lambda part: examples)
        one = member(make, tiny("electra"), data, max_steps=4)
        engine(one.method.backbone, 10_000).fit([one])
        return one

    plain = learned()
    for other in (
        learned(tree=list(WORDS)),
        learned(fan_out=5),
        learned(lambda backbone: tree_of(backbone, data, list(WORDS))),
    ):
        assert other.journal.losses() == plain.journal.losses()
        ours, theirs = other.method.learned(), plain.method.learned()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_made_tree_follows_the_order_of_classes(tiny, data):
    keys = {"readout": "class_words", "fan_out": 3, "order": "reversed"}
    readout = readout_for(tiny("electra"), data, keys, soft=False)
    assert list(readout.paths) == list(WORDS)[::-1]
    assert [node.labels for node in readout.nodes] == [
        ("rome", "Oslo", "bright"),
        ("oslo", "far"),
        ("bright", "dull"),
    ]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tree": ["dull", "far"]}, "the tree lacks bright, oslo, rome"),
        ({"tree": TREE, "fan_out": 2}, "leave readout.fan_out out"),
        ({"tree": TREE, "order": "reversed"}, "leave readout.order out"),
        ({"fan_out": 1}, "readout.fan_out is 1"),
        ({"tree": TREE, "beam": 0}, "readout.beam is 0; use 1 or more"),
        ({"tree": TREE, "reserved": True}, "method.reserved=true needs rows with all"),
        ({"threshold": 0.9}, "readout.threshold=0.9 changes nothing"),
        ({"beam": 4}, "readout.beam=4 changes nothing"),
    ],
)
def test_what_does_not_go_together_is_refused(tiny, data, keys, message):
    reserved, own = keys.pop("reserved", False), {"readout": "class_words", **keys}
    with pytest.raises(UserError, match=message):
        DPT(tiny("electra"), data, reading(**own), reserved=reserved)


def test_a_word_of_a_node_that_the_vocabulary_lacks_is_refused(tiny, data):
    readout = tree_of(
        tiny("electra"), data, {"ÿ": ["dull", "bright"], "far": None, "in": ["oslo", "rome"]}
    )
    with pytest.raises(UserError, match="vocabulary does not know 'ÿ'"):
        readout.encode(five(data), 64)


HUNDREDS = [a + b for a, b in itertools.product("abcdefghijklmnopqrst", "ABCDEFGHIJ")]


@pytest.fixture(scope="module")
def hundreds(tmp_path_factory):
    """Return the overrides of a table of 200 classes, three rows each."""
    folder = tmp_path_factory.mktemp("hundreds")
    with (folder / "t.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        rows.writerows([f"Ann met {label} {n}", label] for n in "xyz" for label in HUNDREDS)
    words = "".join(f"  {label}: [{label}]\n" for label in HUNDREDS)
    pattern = '"{~text} plot {words|commas}."'
    (folder / "p.yaml").write_text(f"pattern: {pattern}\nrule: first\nwords:\n{words}")
    tree = {letter: [w for w in HUNDREDS if w[0] == letter] for letter in "abcdefghijklmnopqrst"}
    (folder / "tree.json").write_text(json.dumps(tree))
    table = [
        f"task.train={folder}/t.csv",
        f"task.dev={folder}/t.csv",
        "task.text=text",
        "task.label=label",
    ]
    return folder, ["task=csv", *table, f"task.pattern=@{folder}/p.yaml", "method=dpt"]


def made(hundreds, tiny, *more):
    composed = compose_run([*hundreds[1], *more])
    return method_of(composed, tiny("electra"), build("task", composed.task, None))


@pytest.mark.slow
@pytest.mark.parametrize("more", ["readout.fan_out=8", "readout.tree=@{}/tree.json"])
def test_two_hundred_classes_are_learned_kept_and_answered(hundreds, tiny, monkeypatch, more):
    folder, _ = hundreds
    one = made(hundreds, tiny, more.format(folder), "readout.bias=true")
    examples = one.task.load("train")
    taught = one.readout.teaching(examples, 128)
    features = one.encode(taught)
    assert max(len(row.ids) for f in features for row in f.rows) <= one.room()
    inner = len(one.readout.nodes)
    assert one.learned_parameters()["head"] == 200 + inner - 1
    parts = {"train": taught[::150], "dev": examples[::150]}
    monkeypatch.setattr(one.task, "load", parts.get)
    few = member(lambda b, t: one, one.backbone, one.task, max_steps=8, lr=3e-3)
    fit = engine(one.backbone, 10_000)
    fit.fit([few])
    assert few.journal.losses()[-1] < few.journal.losses()[0] - 0.1
    some = examples[::29]
    for node in one.readout.nodes:
        centre(node, some)
    told = fit.predict([one], [one.encode(some)])[0]
    assert len({a.value for a in told}) > 5 and {a.value for a in told} <= set(HUNDREDS)
    fresh = made(hundreds, tiny, more.format(folder), "readout.bias=true")
    fit = engine(fresh.backbone, 10_000)
    fit.place([fresh])
    fresh.load_exported(one.exported())
    assert fit.predict([fresh], [fresh.encode(some)])[0] == told


def test_too_many_classes_for_a_row_are_refused_with_what_to_type(hundreds, tiny):
    one = made(hundreds, tiny)
    with pytest.raises(UserError, match=r"room for 64.*\n.*200 class words.*readout.fan_out=16"):
        one.encode(one.task.load("train")[:1])


def test_a_tree_that_changes_makes_another_run(hundreds):
    folder, overrides = hundreds
    file = folder / "own.yaml"

    def name(text):
        file.write_text(text)
        composed = compose_run([*overrides, f"readout.tree=@{file}"])
        content = identity.affecting(composed.config, "data", "weights")
        return identity.run_id(composed.names, content)

    assert name("[a, b]") == name("[a, b]") != name("[b, a]")
