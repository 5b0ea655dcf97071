"""`ptrun export`: what it takes, and what it refuses before it reads anything."""

import pytest

from ptrun.command.export import main
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.runs.launch import launch

WRONG = {
    "RUN": "--to",
    "RUN --to onnx DIR": "--to onnx: use --to peft DIR, --to transformers DIR or --to vllm DIR",
    "RUN --to peft": "expected 2 arguments",
    "no-such-run --to peft DIR": "no-such-run: no such folder",
}


@pytest.mark.parametrize(("typed", "message"), WRONG.items())
def test_wrong_arguments_are_refused(typed, message):
    with pytest.raises(UserError, match=message):
        main(typed.split())


def test_a_run_is_exported_and_another_starts_from_it(tmp_path, capsys):
    """The way out and back: export, then the first loss of a new run is that of the old prompt."""
    common = ["task=pocket_sentiment", "setting=few_shot_32", f"outputs={tmp_path / 'outputs'}"]
    lora = [*common, "method=lora", "readout.pooler=trainable", "train.max_steps=2"]
    done = launch(compose_run(lora))
    out = tmp_path / "adapter"
    main([str(tmp_path / "outputs" / "runs" / done.run_id), "--to", "peft", str(out)])
    assert "LORA on AutoModelForSequenceClassification" in capsys.readouterr().out
    again = launch(compose_run([*lora, f"start=peft:{out}"]))
    assert again.manifest["start_takes"] == "prompt"
    assert again.manifest["started_from"]["run_id"] == "adapter"
    assert again.run_id != done.run_id
    (out / "adapter_config.json").write_text(
        (out / "adapter_config.json").read_text().replace('"lora_alpha": 16', '"lora_alpha": 8')
    )
    other = launch(compose_run([*lora, f"start=peft:{out}"]))
    assert other.run_id not in (done.run_id, again.run_id)
