"""What is wrong use of a command: one sentence that says what to do, exit code 2, nothing else."""

import shlex

import pytest
from typer.testing import CliRunner

import checkpoints
from finetti.boolean import compile_rule
from finetti.cli.main import app

# Command ⇒ words of the sentence.
WRONG = """
--bogus ⇒ No such option: --bogus
bogus ⇒ No such command 'bogus'
audit llama.safetensors ⇒ Give --heads.
audit llama.safetensors --heads 4 ⇒ Give --kv-heads.
audit llama.safetensors --heads 3 --kv-heads 1 ⇒ heads × head width = width
audit llama.safetensors --heads 4 --map none.toml ⇒ cannot be read
audit llama.safetensors --heads 4 --kv-heads 2 --out file ⇒ is a file
audit llama.safetensors --gap 0 ⇒ --gap
audit llama.safetensors --gap 2 ⇒ --gap must be below 1, the range of the loss
audit llama.safetensors --delta 2 ⇒ --delta
audit llama.safetensors --readout-norm -1 ⇒ --readout-norm
audit model --gaps gaps.csv ⇒ more than one PATH
audit model none.safetensors ⇒ none.safetensors
bound ⇒ Give the name of a bound
bound S-thm-A.71 ⇒ Did you mean one of S-thm-A.17, S-thm-A.17-gap,
bound S-cor-4.4 --heads 2 ⇒ Nearest bound: S-lemma-A.12
bound S-cor-4.4 --layers 2 ⇒ Nearest bound: S-thm-A.17
bound S-cor-4.4 --layers two ⇒ Write 1000 or 1e6
bound S-cor-4.4 --samples 0 ⇒ whole number ≥ 1
bound S-cor-4.4 --form guessed ⇒ derived
bound S-cor-4.4 --plot x.svg ⇒ Add --sweep
bound S-cor-4.4 --gap 0.1 ⇒ go together
bound S-cor-4.4 --solve samples --gap 0.1 ⇒ does not fall with the number of samples
bound S-lemma-2.2 --solve layers --gap 0.1 ⇒ --solve must be samples, heads
bound S-lemma-2.2 --solve heads --gap 0.1 ⇒ or take R-thm-risk
bound S-lemma-2.2 --solve samples --gap 2 ⇒ --gap must be below 1, the range
bound S-lemma-2.2 --form printed --solve samples --gap 0.1 ⇒ scaling quantity
bound S-lemma-2.2 --loss-bound inf ⇒ a bounded loss
bound S-lemma-2.2 --delta 2 ⇒ probability
bound S-cor-4.4 S-lemma-2.2 --sweep width=1:9 ⇒ cannot share a chart
bound S-cor-4.4 --sweep width ⇒ Write it as context-length=1e2:1e6
bound S-cor-4.4 --sweep valeu-norm=1:2 ⇒ no norm called 'valeu_norm'
bound S-cor-4.4 --norms /nowhere.json ⇒ cannot be read
bound S-cor-4.4 --sweep width=1:4 --measured 0.1 ⇒ --sweep and --measured
bound S-cor-4.4 --sweep width=1:4 --sensitivity ⇒ --sweep and --sensitivity
bound S-lemma-2.2 --sweep samples=1:9 --solve samples --gap 0.1 ⇒ Cannot both sweep and solve for
bound S-lemma-2.2 --json --format csv ⇒ --json and --format
bound S-thm-A.17-gap --layers 6 --heads 8 ⇒ Nearest bound: E-thm-C.5.
bound S-thm-A.17 --layers 6 --heads 8 ⇒ Nearest bound: E-lemma-C.8.
bound S-cor-4.4-gap --layers 6 --heads 8 ⇒ Nearest bound: E-thm-C.5.
bound S-cor-4.4 --width 0 ⇒ --width must be a whole number
bound S-thm-A.17 --layers 10001 ⇒ --layers must be at most 10000
bound S-thm-4.6 --layers 1e9 ⇒ --layers must be at most 10000
bound S-lemma-A.12 --width 10001 --heads 10001 ⇒ --heads must be at most 10000
bound S-cor-4.4 --resolution 0 ⇒ --resolution must be
bound E-prop-4.1 --solve tokens --gap -1 ⇒ --gap must be
bound S-lemma-2.2 --measured -1 ⇒ --measured must be
bound E-prop-4.2 ⇒ (softmax attention is the mean of a kernel density) is a claim that
bound no-such-words ⇒ No bound matches 'no-such-words'
bound E-thm-C.4 R-thm-risk --sweep samples=1e3:1e4 ⇒ cannot share a chart
bound E-prop-4.1 --solve samples --gap 1 ⇒ Solve for tokens
bound S-lemma-2.2 --solve tokens --gap 0.1 ⇒ does not fall with the number of
bound S-lemma-2.2 --solve tokens --gap 1 ⇒ E-prop-4.1
bound E-thm-C.4 --solve samples --gap 0.1 ⇒ Give the --constant yourself
bound S-cor-4.4 --sweep T=1:9 --plot /nowhere/x.svg ⇒ no folder '/nowhere'
bound S-cor-4.4 --sweep T=1:9 --plot /proc/x.svg ⇒ cannot be written
bound S-cor-4.4 --sweep T=1:9 --plot x.foo ⇒ End the name with .svg
bound E-thm-C.4 --constant 2 ⇒ --constant needs --solve
bound S-thm-A.17-gap --solve samples --gap 0.1 --constant 1e-4 ⇒ Leave out --constant
bound E-prop-4.1 --solve tokens --gap 1 --constant 1e-4 ⇒ Leave out --constant
bound S-thm-A.17-gap --layers 6 --heads 8 --loss-bound inf ⇒ Nearest bound: none with constants
claims --bogus ⇒ No such option: --bogus
claims --check belief ⇒ 'belief' is not one of
claims nothing of the kind ⇒ No claim matches 'nothing of the kind'
claims S-eratum-3 ⇒ S-erratum-3
coherence softmux ⇒ Unknown target 'softmux'. Choose one of softmax,
coherence mesa --world moon ⇒ Unknown world 'moon'. Choose one of beta-bernoulli,
coherence mesa --world sphere ⇒ neither letters nor Gaussian
coherence mesa --world beta-bernoulli ⇒ reads pairs
coherence mesa --context-length 2 ⇒ at least 3
coherence mesa --context-length few ⇒ cannot read
coherence ./nowhere.py:Name ⇒ no file
coherence builtins:max ⇒ max does not say which arguments it takes
coherence mesa --context-length 1000000 ⇒ GB of memory. Take shorter contexts
compile 'x3 & x70' --context-length 10 ⇒ x70, outside the context
compile x3 ⇒ --context-length
compile --context-length 10 ⇒ a RULE
compile --check none.safetensors ⇒ cannot be read
compile x1 --context-length 10 --out no/such/dir.safetensors ⇒ cannot be written
compile x1 --context-length 10 --out . ⇒ it is a folder
compile x1 --context-length 10 --explain no/such.svg ⇒ cannot be written
compile x1 --context-length 10 --explain picture.gif ⇒ End the name with .svg
compile x1 --context-length 10 --explain /proc/x.svg ⇒ cannot be written
compile x1 --context-length 10 --margin 0.5 ⇒ margin 0.5
compile --check . ⇒ cannot be read
compile x1 --context-length 10 --tolerance 0.1 ⇒ only applies to --check
compile --check a.safetensors --out b.safetensors ⇒ leave out --out
compile 'x0 & x1' --context-length 10 --rule x5 ⇒ --rule only applies to --check
compile x0 --check a.safetensors --rule x1 ⇒ takes one rule
compile --check a.safetensors --gates --basis random ⇒ out --basis or --gates
compile --check a.safetensors --margin 1 --seed 0 ⇒ leave out --margin or --seed
compile x1 --context-length 0 ⇒ greater than or equal
compile x1 --context-length 10 --basis hadamard ⇒ orthonormal
compile x1 --context-length 12 --format torch ⇒ needs a file to write to: --out rule.pt
compile x1 --context-length 12 --format onnx --out rule.pt ⇒ must be one of safetensors, torch
compile x1 --context-length 12 --format torch --out rule.bin ⇒ --out must be a name that ends
compile 'x1 | x2' --context-length 9 --gates --embedding bag ⇒ use --embedding deterministic
compile 'x1 & x2' --context-length 10 --width 4 ⇒ at least 13, or --basis random.
compile 1 --context-length 10 --gates ⇒ Use `finetti compile` without --gates.
compile --check rule.safetensors --tolerance 5 ⇒ --tolerance must be
probe --sparsity 9 --context-length 8 ⇒ --sparsity 9 exceeds the shortest
probe --samples 0 ⇒ --samples must be at least 1
probe --samples 50:20:10 ⇒ Write FIRST:LAST:STEP with FIRST ≤ LAST
probe --samples ten ⇒ 100,200,400
probe --context-length '10;20' ⇒ --context-length cannot read '10;20'
probe --function nand ⇒ and, or, parity, majority
probe --function 'x0 & ~x0' ⇒ constant
probe --learner gpt ⇒ Unknown learner 'gpt'. Choose one of paper,
probe --learner ./nothing.py:Net ⇒ nothing.py
probe --learner l1 --learner l1 ⇒ l1 twice
probe --learner l1 --dropout none ⇒ Add --learner paper
probe --learner l1 --online ⇒ trains by gradients
probe --online --samples 10 ⇒ --samples cannot be combined with --online
probe --level 1.5 ⇒ --level must lie between 0 and 1
probe --noise 0.7 ⇒ --noise must be in [0, 1/2)
probe --bit-probability 0 ⇒ --bit-probability must be in (0, 1)
probe --iterations 15 ⇒ --iterations must be a multiple of 10
probe --iterations 500 --learner tree ⇒ --iterations is for learners that
probe --learner paper --learner l1 --iterations 50 ⇒ which 'l1' is not
probe --sparsity 7 ⇒ --success-accuracy must be above 0.992188
probe --batch-size 5 ⇒ --batch-size only applies to --online
probe --search --samples 5,10,20 ⇒ Give both
probe --workers 2 --cluster tcp://x:1 ⇒ Give one
probe --time-limit 0 ⇒ time limit must be a positive number of seconds
probe --memory-limit -1 ⇒ memory limit must be a positive number of gigabytes
reproduce x ⇒ unexpected extra argument
reproduce --scale huge ⇒ 'huge' is not one of
reproduce --seed -1 ⇒ greater than or equal to 0
reproduce --seed x ⇒ unable to parse string as an integer
reproduce --only E-eq-none ⇒ No claim matches 'E-eq-none'
reproduce --out file ⇒ is a file. Choose a directory.
reproduce --against model/config.json ⇒ results.json
risk --world nope ⇒ Unknown world 'nope'. Choose one of beta-bernoulli, finite-a
risk --network nope ⇒ Choose one of attention, limited-attention, conditional-mean
risk --network ./nothing.py:make ⇒ nothing.py
risk --samples ten ⇒ --samples cannot read 'ten'
risk --samples 0 ⇒ --samples must be at least 1
risk --option noise_variance=-1 ⇒ must be a finite number > 0. Got -1 instead.
risk --option colour=3 ⇒ --option must name settings of linear-gaussian: key_dimension, val
risk --world sphere --option rotations=1 ⇒ --option must name settings of sphere:
risk --option noise ⇒ Write NAME=VALUE
risk --learning-rate 0 ⇒ --learning-rate should be greater than 0
risk --time-limit 0 ⇒ time limit must be a positive number of seconds
risk --workers 2 --cluster tcp://x:1 ⇒ Give one
run missing.toml ⇒ missing.toml
run study.sqlite ⇒ study.sqlite
run study.toml --scale huge ⇒ no scale 'huge'
run study.toml --executor magic ⇒ --executor
run study.toml --workers 2 --executor inline ⇒ Leave `executor` out
run study.toml --workers 2 --cluster tcp://a:1 ⇒ Give one of them
run study.toml --time-limit -1 --seed 9 ⇒ time limit must be a positive number
run study.toml --seed 9 --store file/s.sqlite ⇒ Choose another path for the store
run trails.toml ⇒ `trails` is not a key of a study. Did you mean `trials`?
run rnage.toml ⇒ `scales.tiny.grid.n_points.rnage`
run width.toml ⇒ `fixed.width` is not a parameter
run twice.toml ⇒ not TOML
run random_feature_target ⇒ random_feature_targets
status missing.sqlite ⇒ There is no store
status study.sqlite --scale tiny ⇒ apply to a study.toml
status file ⇒ damaged or is not a store
export study.toml --format xls ⇒ --format must be one of
export study.toml --format parquet ⇒ --out FILE
export study.toml --details --summary ⇒ Ask for one of them
export study.toml --out file/a.csv ⇒ cannot be written
merge study.sqlite study.sqlite ⇒ cannot be merged into itself
merge new.sqlite missing.sqlite ⇒ There is no store
view none ⇒ does not exist
"""
CASES = [line.split(" ⇒ ") for line in WRONG.strip().splitlines()]
STUDY = """
kind = "finetti.studies.examples:estimate_pi"
trials = 2
[grid]
n_points = [10, 20]
[scales.tiny]
trials = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Checkpoints, a compiled rule, studies good and bad, a store, and a file that is none."""
    folder = tmp_path_factory.mktemp("wrong")
    arrays, config, _ = checkpoints.synthetic("bert")
    checkpoints.write(folder / "model", arrays, config)
    arrays, _, _ = checkpoints.synthetic("llama", kv_heads=2)
    checkpoints.write(folder, arrays, name="llama.safetensors")
    compile_rule("x1 & x3", 5, quiet=True).save(folder / "rule.safetensors")
    for name, text in {
        "study.toml": STUDY,
        "trails.toml": f"trails = 3\n{STUDY}",
        "twice.toml": f"trials = 3\n{STUDY}",
        "rnage.toml": f"{STUDY}[scales.tiny.grid]\nn_points = {{rnage = [1, 2, 1]}}\n",
        "width.toml": f"{STUDY}[fixed]\nwidth = 3\n",
        "gaps.csv": "checkpoint,gap\nmodel,0.1\nothers,0.2\n",
        "file": "neither a study nor a store\n" * 99,
    }.items():
        (folder / name).write_text(text)
    done = CliRunner().invoke(app, ["run", str(folder / "study.toml"), "--executor", "inline"])
    assert done.exit_code == 0, done.output
    return folder


def content(folder):
    return {str(path): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize(("command", "words"), CASES, ids=lambda text: text[:60])
def test_wrong_use_is_one_sentence_of_advice_and_changes_nothing(
    folder, monkeypatch, command, words
):
    monkeypatch.chdir(folder)
    before = content(folder)
    done = CliRunner().invoke(app, shlex.split(command))
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.stderr.replace("│", " ").split())
    # Options that Typer refuses by itself are told below the usage.
    assert done.stderr.count("\n") == 1 or done.stderr.startswith("Usage: ")
    assert done.stdout == ""  # nothing was computed, or it would be shown
    assert "Traceback" not in done.stderr
    assert content(folder) == before
