# SPDX-License-Identifier: MIT
"""From single measurements to the table: medians over the rounds, with the lowest and the highest, and the aims."""

import statistics

import bench_stacks as stacks

AIM_FASTER = 5  # times etcd's grants per second at 20 waiters
AIM_WAITERS = 20
AIM_HANDOVER = 3  # times an uncontended acquire


def spread(values):
    """Of one figure, one value a round."""
    values = [value for value in values if value is not None]
    return {"median": round(statistics.median(values), 2), "min": min(values), "max": max(values)} if values else None


def of(found, stack, what, waiters=None):
    return [one["figures"] for one in found if one["stack"] == stack and one["what"] == what and waiters in (None, one["waiters"])]


def handover_ratios(found, stack, waiters):
    """Median hand-over by median acquire, of the same round each."""
    pairs = zip(of(found, stack, "loop", waiters), of(found, stack, "alone"))
    return [round(loop["handover_us"]["median"] / alone["acquire_us"]["median"], 2) for loop, alone in pairs if loop["handover_us"]["count"]]


def errors_of(loops):
    total = {}
    for loop in loops:
        for status, count in loop["errors"].items():
            total[status] = total.get(status, 0) + count
    return total


def line_of(found, stack, waiters):
    loops = of(found, stack, "loop", waiters)
    return {
        "grants_per_s": spread([loop["grants_per_s"] for loop in loops]),
        "handover_us": spread([loop["handover_us"].get("median") for loop in loops]),
        "handover_mean_us": spread([loop["handover_us"].get("mean") for loop in loops]),
        "handover_p99_us": spread([loop["handover_us"].get("p99") for loop in loops]),
        "handover_from_answer_us": spread([loop["handover_from_answer_us"].get("median") for loop in loops]),
        "handover_between_servers_us": spread([loop["handover_between_servers_us"].get("median") for loop in loops]),
        "handover_by_acquire": spread(handover_ratios(found, stack, waiters)),
        "evalsha_per_grant_and_master": spread([loop["calls_per_grant_and_master"].get("evalsha") for loop in loops]),
        "cpu_us_per_grant": {kind: spread([loop["cpu_us_per_grant"][kind] for loop in loops]) for kind in loops[0]["cpu_us_per_grant"]},
        "overtaken_at_one_server": sum(loop["overtaken_at_one_server"] for loop in loops),
        "overtaken_at_one_server_max_us": max(loop["overtaken_at_one_server_max_us"] for loop in loops),
        "overtaken": sum(loop["overtaken"] for loop in loops),
        "overtaken_max_us": max(loop["overtaken_max_us"] for loop in loops),
        "fence_mistakes": sum(loop["fence_mistakes"] for loop in loops),
        "errors": errors_of(loops),
    }


def summary(found):
    """{stack: {"alone": …, "order": …, "loops": {waiters: …}}}"""
    result = {}
    for stack in dict.fromkeys(one["stack"] for one in found):
        waiters = sorted({one["waiters"] for one in found if one["stack"] == stack and one["what"] == "loop"})
        alone, order = of(found, stack, "alone"), of(found, stack, "order")
        result[stack] = {
            "acquire_alone_us": spread([one["acquire_us"]["median"] for one in alone]),
            "release_alone_us": spread([one["release_us"]["median"] for one in alone]),
            "order": {"grants": sum(one["grants"] for one in order), "mistakes": sum(one["mistakes"] for one in order)},
            "loops": {str(number): line_of(found, stack, number) for number in waiters},
        }
    return result


def aim(text, reached, figures):
    return {"aim": text, "reached": reached, "figures": figures}


def faster_aim(found, sums):
    """Against the faster of the etcd servers that were measured, whichever it is; round by round."""
    of_etcd = [name for name in sums if name.startswith("etcd") and str(AIM_WAITERS) in sums[name]["loops"]]
    if "redlockd-1" not in sums or not of_etcd or str(AIM_WAITERS) not in sums["redlockd-1"]["loops"]:
        return []
    best = max(of_etcd, key=lambda name: sums[name]["loops"][str(AIM_WAITERS)]["grants_per_s"]["median"])
    pairs = zip(of(found, "redlockd-1", "loop", AIM_WAITERS), of(found, best, "loop", AIM_WAITERS))
    ratio = spread([round(ours["grants_per_s"] / theirs["grants_per_s"], 2) for ours, theirs in pairs])
    return [aim(f"at least {AIM_FASTER} times the grants/s of etcd at {AIM_WAITERS} waiters (here: {best})", ratio["median"] >= AIM_FASTER, ratio)]


def aims(found, sums):
    result = faster_aim(found, sums)
    for stack in (name for name in sums if name.startswith("redlockd")):
        for waiters, line in sums[stack]["loops"].items():
            ratio = line["handover_by_acquire"]
            text = f"median hand-over below {AIM_HANDOVER} uncontended acquires: {stack}, {waiters} waiters"
            result.append(aim(text, bool(ratio) and ratio["median"] < AIM_HANDOVER, ratio))
    if "redlockd-1" in sums:
        order = sums["redlockd-1"]["order"]
        result.append(aim("order of grants is order of arrival at one replica, without exception", order["mistakes"] == 0 and order["grants"] > 0, order))
    return result


# ---- for people ----


def number(one, digits=0, wide=True):
    """A median, if wide with its lowest and highest."""
    if one is None:
        return "–"
    if not wide:
        return f"{one['median']:.{digits}f}"
    return f"{one['median']:.{digits}f} ({one['min']:.{digits}f}…{one['max']:.{digits}f})"


def show_table(head, lines):
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    for line in [head, *lines]:
        print("  ".join(word.ljust(width) if i == 0 else word.rjust(width) for i, (word, width) in enumerate(zip(line, widths))))


def show_loops(sums):
    head = ["", "waiters", "grants/s", "hand-over µs", "mean", "p99", "from the answer", "by acquire", "EVALSHA", "CPU µs/grant"]
    lines = []
    for name, one in sums.items():
        for waiters, line in one["loops"].items():
            cpu = " ".join(f"{kind} {of_kind['median']:.0f}" for kind, of_kind in line["cpu_us_per_grant"].items())
            lines.append([stacks.HOT[name][1], waiters, number(line["grants_per_s"]), number(line["handover_us"]),
                          number(line["handover_mean_us"], wide=False), number(line["handover_p99_us"], wide=False),
                          number(line["handover_from_answer_us"]), number(line["handover_by_acquire"], 2),
                          number(line["evalsha_per_grant_and_master"], 2, wide=False), cpu])
    show_table(head, lines)


def show_rest(sums):
    head = ["", "acquire alone µs", "release alone µs", "grants in order drill", "mistakes", "fences not growing", "errors"]
    lines = []
    for name, one in sums.items():
        loops = one["loops"].values()
        errors = " ".join(f"{line['errors']}" for line in loops if line["errors"]) or "none"
        lines.append([stacks.HOT[name][1], number(one["acquire_alone_us"]), number(one["release_alone_us"]), str(one["order"]["grants"]),
                      str(one["order"]["mistakes"]), str(sum(line["fence_mistakes"] for line in loops)), errors])
    show_table(head, lines)


def show(sums, found_aims):
    print("\nmedian of the rounds (lowest…highest); etcd without fences\n")
    show_loops(sums)
    print()
    show_rest(sums)
    print()
    for one in found_aims:
        figures = one["figures"]
        value = number(figures, 2) if figures and "median" in figures else figures
        print(f"{'reached' if one['reached'] else 'NOT reached'}: {one['aim']}: {value}")
