"""How often claims are red, over many seeds of the quick run, against the rates that they state.

python benchmarks/seeds.py --seeds 20 --workers 2 --store seeds.sqlite > results/seeds.md

Goes on where it was stopped; evidence of other code is not used.
"""

import argparse

from finetti.claims import Context, load_ledger, run_claims


def main() -> None:
    """Run the seeds that are asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", default="seeds.sqlite")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    ledger = load_ledger().select(given.only) if given.only else load_ledger()
    seeds = range(given.first, given.first + given.seeds)
    red: dict[str, list[str]] = {claim.id: [] for claim in ledger}
    with open_executor(workers=given.workers) as executor:
        for seed in seeds:
            found = run_claims(
                ledger,
                Context(seed=seed),
                store=given.store,
                run=lambda study, plan: study.run(
                    executor, plan=plan, describe=lambda params: params["entry"]
                ),
            )
            for result in found:
                if not result.as_expected:
                    red[result.claim.id].append(f"{seed} ({result.verdict.value}: {result.reason})")
    surprises = {name: runs for name, runs in red.items() if runs}
    print(f"{len(ledger)} claims, seeds {seeds[0]} to {seeds[-1]}, scale quick.")
    print(
        f"A true claim may be red in {100 * ledger.false_alarm:.2g} % of the runs: in "
        f"{len(seeds) * ledger.false_alarm:.2g} of these {len(seeds)}."
    )
    print(f"Verdicts that were not as expected: {sum(map(len, surprises.values()))}.\n")
    print("| claim | stated rate | runs | not as expected |")
    print("|---|---|---|---|")
    for claim in ledger:
        if claim.false_alarm or red[claim.id]:
            runs = "; ".join(red[claim.id]) or "none"
            print(f"| {claim.id} | {claim.false_alarm:g} | {len(seeds)} | {runs} |")
    print("\nAll other claims leave nothing to chance, and were as expected in every run.")


if __name__ == "__main__":
    main()
