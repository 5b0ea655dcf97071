"""A written token costs no more launches than the library's own, and one wait of the host."""

import json

LAYERS = 3


def test_a_token_starts_no_more_than_the_library_does(disguised):
    ran = disguised("-m", "tests.cuda.writing")
    assert ran.returncode == 0, ran.stderr
    costs = json.loads(ran.stdout.splitlines()[-1])
    for kind, most in (("gpt2", 78), ("llama", 139)):
        launches = {name: count for name, (count, _) in costs[kind].items()}
        assert {name: waits for name, (_, waits) in costs[kind].items() if waits > 1} == {}
        assert launches["bare"] == launches["prefix"] <= min(most, launches["static"])
        maps = LAYERS * (1 if kind == "gpt2" else 2)
        assert launches["lora"] <= launches["bare"] + 4 * maps  # two products, a scale, a sum
        assert launches["greedy"] <= launches["bare"] + 7  # the library's search for an end
        assert launches["draws"] <= launches["bare"] + 9  # noise of uniform numbers
