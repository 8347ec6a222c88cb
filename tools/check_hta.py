#!/usr/bin/env python3
"""Reads a folder that `motet plan --hta` wrote with Holistic Trace Analysis (PyPI: HolisticTraceAnalysis)
and holds its breakdown of each rank's time against the plan.

    motet plan ... --trace folder --hta --json >plan.json
    tools/check_hta.py folder plan.json
"""

import json
import sys

from hta.trace_analysis import TraceAnalysis


def main(folder, plan_path):
    with open(plan_path) as file:
        plan = json.load(file)
    analysis = TraceAnalysis(trace_dir=folder)
    table = analysis.get_temporal_breakdown(visualize=False).set_index("rank")
    overlap = analysis.get_comm_comp_overlap(visualize=False).set_index("rank")
    analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    kernels, _ = analysis.get_gpu_kernel_breakdown(visualize=False)
    if len(table) != len(plan["ranks"]):
        sys.exit(f"{len(table)} ranks were read and {len(plan['ranks'])} planned")
    worst = 0.0
    for rank, expected in enumerate(plan["ranks"]):
        found = table.loc[rank, "compute_time(us)"] * 1e-6
        worst = max(worst, abs(found - expected["busy"]))
        if abs(found - expected["busy"]) > 1e-5 + 1e-6 * expected["busy"]:
            sys.exit(f"rank {rank}: {found} s of compute were read and {expected['busy']} s planned")
    print(f"{len(table)} ranks; compute as planned to {worst:.1e} s; kernel classes: {sorted(kernels['kernel_type'])}; "
          f"overlap of rank 0: {overlap.iloc[0, 0]:.1f}%")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
