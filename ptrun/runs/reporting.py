"""The end of trained runs: the selected prompts are saved, and test is scored once."""

from collections.abc import Sequence
from dataclasses import replace

from ptrun.runs.execution import Execution
from ptrun.runs.finished import found_by
from ptrun.types import Example, Prediction, RunResult


def reported(works: Sequence[Execution]) -> list[RunResult]:
    """Restore and save the selected prompts, score test once, and return the results.

    A trial of a search scores no test examples.
    """
    done = [work for work in works if not work.failed]
    for work in done:
        _save_selected(work)
    dev = [_dev_metrics(work) for work in done]
    scored: dict[str, dict[str, dict[str, float]]] = {}
    for work, own, (examples, predictions) in zip(done, dev, _predict(done, "test"), strict=True):
        if work.planned.trial is not None:
            scored[work.planned.run_id] = {"dev": own, "test": {}}
            continue
        test = work.planned.task.score(predictions, examples)
        work.store.write_predictions(examples, predictions)
        work.store.log({"event": "test", **test})
        scored[work.planned.run_id] = {"dev": own, "test": test}
    outcomes = [_outcome(work) for work in works]
    return [replace(one, metrics=scored.get(one.run_id, {})) for one in outcomes]


def _outcome(work: Execution) -> RunResult:
    """Return the result without its metrics and manifest."""
    planned, counts = work.planned, [part.method.learned_parameters() for part in work.parts]
    return RunResult(
        run_id=planned.run_id,
        group=planned.group,
        status="failed" if work.failed else "finished",
        names=planned.names,
        seed=planned.seed,
        metric=planned.task.metric,
        learned_parameters={key: sum(count[key] for count in counts) for key in counts[0]},
        config=planned.content,
        reason=work.failed,
    )


def _save_selected(work: Execution) -> None:
    """Load the selected tensors into the methods, and write them; a tuned model only if asked."""
    for part in work.parts:
        part.member.finish()
    work.store.log({"event": "selection_done", "best_step": work.parts[0].member.best_step})
    if work.tuned and not work.planned.keep.has_weights:
        return
    prompts = {
        part.prefix + name: tensor
        for part in work.parts
        for name, tensor in work.planned.engine.whole(part.method).items()
    }
    work.store.write_prompt(prompts, work.planned.method.node, found_by(work.planned.task))


def _predict(works: Sequence[Execution], name: str) -> list[tuple[list[Example], list[Prediction]]]:
    """Return the dev or test examples of each run, of all its parts, and their predictions."""
    both = [(work, part) for work in works for part in work.parts]
    examples = [getattr(part.split, name) for _, part in both]
    methods = [part.method for _, part in both]
    features = [
        work.encoded(part.method, own) for (work, part), own in zip(both, examples, strict=True)
    ]
    predicted = works[0].planned.engine.predict(methods, features) if works else []
    pairs = iter(zip(examples, predicted, strict=True))
    return [_joined([next(pairs) for _ in work.parts]) for work in works]


def _joined(
    parts: Sequence[tuple[Sequence[Example], Sequence[Prediction]]],
) -> tuple[list[Example], list[Prediction]]:
    return [e for own, _ in parts for e in own], [p for _, own in parts for p in own]


def _dev_metrics(work: Execution) -> dict[str, float]:
    """Return the selected evaluation; the selected prompts of several parts are scored as one."""
    if len(work.parts) > 1:
        ((examples, predictions),) = _predict([work], "dev")
        return work.planned.task.score(predictions, examples)
    member = work.parts[0].member
    selected = [row for row in member.history if row["step"] == member.best_step]
    return {key: value for row in selected[-1:] for key, value in row.items() if key != "step"}
