# SPDX-License-Identifier: MIT
"""From single measurements to medians with their spread, a table, plots and the aims."""

import contextlib
import statistics

AIM_CONNECTIONS = 64


class Figures:
    """What was measured, by part, stack, load and connections: one value a round."""

    def __init__(self, measurements):
        self.found = measurements

    def values(self, figure, part, stack, what, connections):
        return [one["figures"][figure] for one in self.found
                if (one["part"], one["stack"], one["what"], one["connections"]) == (part, stack, what, connections) and figure in one["figures"]]

    def keys(self):
        return list(dict.fromkeys((one["part"], one["stack"], one["what"], one["connections"]) for one in self.found))

    def ratio(self, figure, first, second):
        """first / second, round by round; None where one of them is missing."""
        pairs = list(zip(self.values(figure, *first), self.values(figure, *second)))
        return [a / b for a, b in pairs if b] or None


def spread(values, digits=0):
    if not values:
        return "–"
    median = statistics.median(values)
    if len(values) == 1:
        return f"{median:.{digits}f}"
    return f"{median:.{digits}f} ({min(values):.{digits}f}…{max(values):.{digits}f})"


def median(values):
    return statistics.median(values) if values else None


HEAD = ["part", "stack", "load", "connections", "a second", "p50 µs", "p99 µs", "p99.9 µs", "CPU µs: service", "CPU µs: masters", "errors"]
WATCH_HEAD = ["watchers", "scripts of all masters per change", "redlockd, of a processor", "masters, of a processor", "events a second", "last event ms, changes one by one", "last event ms, at the end of 100 a second"]

SHARE_HEAD = ["lock", "requests a second", "scripts of a master per request", "CPU µs: service", "CPU µs: masters", "held while somebody waits", "release to next grant ms"]

TAIL_HEAD = ["segment", "seconds", "p50 µs", "p99 µs", "p99.9 µs", "p99.9 / p50", "errors", "worst second", "its p99 µs", "its longest µs", "generator woke late µs", "processors of others"]
TAIL_FAULTS = {"stop": "SIGSTOP", "cont": "SIGCONT", "kill": "SIGKILL", "start": "restart"}


def rows(figures):
    for key in figures.keys():
        def of(figure, digits=0, key=key):
            return spread(figures.values(figure, *key), digits)
        yield [key[0], key[1], key[2], str(key[3]), of("per_s"), of("p50_us"), of("p99_us"), of("p999_us"), of("cpu_us_service", 1), of("cpu_us_masters", 1),
               str(sum(figures.values("errors", *key)))]


def table(head, lines):
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines]) + "\n"


# ---- aims: (what, reached(value), the value of each round)


def aims(figures):
    at = AIM_CONNECTIONS
    ours = ("masters", "redlockd, 3 masters", "acquire", at)
    health = ("masters", "redlockd, 3 masters", "healthz", at)
    peer = ("peers", "redlockd", "acquire", at)

    def other(name):
        return ("peers", name, "acquire", at)

    def fault(name):
        return ("faults", f"one of five {name}", "acquire", at)
    yield "CPU of redlockd per acquire: at most 2.0 times GET /healthz", lambda value: value <= 2.0, figures.ratio("cpu_us_service", ours, health)
    yield "acquires a second: at least 0.33 of GET /healthz", lambda value: value >= 0.33, figures.ratio("per_s", ours, health)
    yield "median at one connection, over GET /healthz plus 1.5 round trips of the script: at most 1", lambda value: value <= 1, alone(figures)
    yield "at least 7 times etcd with three members", lambda value: value >= 7, figures.ratio("per_s", peer, other("etcd, 3 members"))
    yield "at least 1.6 times the Node service", lambda value: value >= 1.6, figures.ratio("per_s", peer, other("redlock in Node"))
    yield "at least 1.3 times the Go service", lambda value: value >= 1.3, figures.ratio("per_s", peer, other("redsync in Go"))
    yield "CPU per acquire: at most half of the Node service's", lambda value: value <= 0.5, figures.ratio("cpu_us_service", peer, other("redlock in Node"))
    yield "CPU per acquire: below the Go service's", lambda value: value < 1, figures.ratio("cpu_us_service", peer, other("redsync in Go"))
    yield "one of five masters stopped: at least 0.9 of the healthy throughput", lambda value: value >= 0.9, figures.ratio("per_s", fault("stopped"), fault("healthy"))
    yield "one of five masters stopped: p99 at most 1.3 times", lambda value: value <= 1.3, figures.ratio("p99_us", fault("stopped"), fault("healthy"))
    yield from pair_aims(figures)
    yield "two workers: at least 1.6 times one", lambda value: value >= 1.6, figures.ratio("per_s", ("workers", "redlockd, 2 workers", "acquire", at),
                                                                                   ("workers", "redlockd, 1 workers", "acquire", at))


def pair_aims(figures):
    """A whole life, and refusals; with --before also beside that one."""
    def of(part, stack, what):
        return (part, stack, what, AIM_CONNECTIONS)
    ours, now, before = of("peers", "redlockd", "pair"), "this redlockd", "redlockd before"
    yield "refusals a second: at least the rate of grants", lambda value: value >= 1, figures.ratio("per_s", of("masters", "redlockd, 3 masters", "refused"), of("masters", "redlockd, 3 masters", "acquire"))
    yield "pairs: at least 3 times the Go service", lambda value: value >= 3, figures.ratio("per_s", ours, of("peers", "redsync in Go", "pair"))
    yield "pairs: at least 12 times etcd with three members", lambda value: value >= 12, figures.ratio("per_s", ours, of("peers", "etcd, 3 members", "pair"))
    yield "pairs: at least 1.3 times before", lambda value: value >= 1.3, figures.ratio("per_s", of("before", now, "pair"), of("before", before, "pair"))
    yield "acquisitions: at least 1.15 times before", lambda value: value >= 1.15, figures.ratio("per_s", of("before", now, "acquire"), of("before", before, "acquire"))
    yield "CPU of redlockd for a pair: at most 0.75 of before", lambda value: value <= 0.75, figures.ratio("cpu_us_service", of("before", now, "pair"), of("before", before, "pair"))
    yield "CPU of the masters for a pair: at most 0.65 of before", lambda value: value <= 0.65, figures.ratio("cpu_us_masters", of("before", now, "pair"), of("before", before, "pair"))


def alone(figures):
    """Round by round: the median of an acquisition at one connection, by that of GET /healthz and one and a half round trips of the script."""
    acquire = figures.values("p50_us", "masters", "redlockd, 3 masters", "acquire", 1)
    health = figures.values("p50_us", "masters", "redlockd, 3 masters", "healthz", 1)
    trip = figures.values("p50_us", "script", "one master", "script, one client", 1)
    return [a / (h + 1.5 * t) for a, h, t in zip(acquire, health, trip)] or None


def growth_aims(growth):
    def of(what, count, figure):
        return [one[figure] for one in growth or [] if one["count"] == count and one["what"].startswith(what)]
    yield "10,000 connections that have not spoken yet: at most 40 MB resident", lambda value: value <= 40, of("connections that", 10000, "redlockd_mb")
    yield "10,000 idle connections, each after one request: at most 40 MB resident", lambda value: value <= 40, of("idle connections", 10000, "redlockd_mb")
    yield "10,000 idle connections at rest: at most 20 MB resident", lambda value: value <= 20, of("the same at rest", 10000, "redlockd_mb")
    yield "10,000 waiters: at most 100 MB resident", lambda value: value <= 100, of("waiters", 10000, "redlockd_mb")
    yield "10,000 waiters: at least 0.8 of the throughput for others", lambda value: value >= 0.8, of("waiters", 10000, "others")


def tail_segments(tails):
    """name: the segment of each run"""
    return {name: [one for run in tails for one in run["segments"] if one["name"] == name] for name in dict.fromkeys(one["name"] for run in tails or [] for one in run["segments"])}


def tail_ratio(segment):
    return segment["took_us"]["p999"] / segment["took_us"]["median"]


def tail_errors(segment):
    return segment["refused"] + segment["dropped"]


def tail_aims(tails):
    for name, found in tail_segments(tails).items():
        yield f"half of the highest rate, {name}: p99.9 at most 5 times p50", lambda value: value <= 5, [tail_ratio(one) for one in found]
    if tails:
        yield "half of the highest rate: no errors", lambda value: value == 0, [sum(map(tail_errors, run["segments"])) for run in tails]


def aim_lines(result):
    for what, reached, values in [*aims(Figures(result["measurements"])), *growth_aims(result["growth"]), *tail_aims(result["tails"])]:
        if values:
            yield [what, spread(values, 2), "yes" if reached(statistics.median(values)) else "**no**"]


# ---- plots


@contextlib.contextmanager
def picture(folder, name, width, height):
    """The axes of a plot, written to NAME.svg."""
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
    drawn, axes = pyplot.subplots(figsize=(width, height))
    yield axes
    drawn.tight_layout()
    drawn.savefig(folder / f"{name}.svg", metadata={"Date": None})
    pyplot.close(drawn)


def plot(figures, folder):
    for part, what, title in (("masters", "acquire", "Acquisitions a second, by masters and connections"), ("peers", "acquire", "Acquisitions a second, beside others"),
                              ("faults", "acquire", "One of five masters")):
        keys = [key for key in figures.keys() if key[0] == part and key[2] == what]
        if not keys:
            continue
        names = [f"{key[1]}, {key[3]} conn." for key in keys]
        values = [figures.values("per_s", *key) for key in keys]
        middles = [statistics.median(one) for one in values]
        errors = [[m - min(one) for m, one in zip(middles, values)], [max(one) - m for m, one in zip(middles, values)]]
        with picture(folder, part, 8, 0.45 * len(keys) + 1.2) as axes:
            axes.barh(names, middles, xerr=errors, color="#4477aa", ecolor="#333333", capsize=3)
            axes.invert_yaxis()
            axes.set_xlabel("a second")
            axes.set_title(title)


def plot_tails(run, folder):
    """The latencies of each second, with the faults and what redlockd reported of the master."""
    seconds = [one for one in run["by_second"] if one["answered"]]
    with picture(folder, "tails", 11, 5) as axes:
        for figure, name, color in (("p999", "p99.9", "#cc3311"), ("p99", "p99", "#ee7733"), ("median", "p50", "#4477aa")):
            axes.plot([one["from_s"] + 0.5 for one in seconds], [one["took_us"][figure] / 1000 for one in seconds], color=color, label=name)
        axes.plot([one["from_s"] + 0.5 for one in seconds], [one["late_us"] / 1000 for one in seconds], ":", color="#999999", label="generator woke late, at most")
        for second, what in run["events"]:
            axes.axvline(second, color="#333333" if what in TAIL_FAULTS else "#bbbbbb", linewidth=0.8)
            axes.text(second, 0.99, TAIL_FAULTS.get(what, what), rotation=90, fontsize=7, verticalalignment="top", transform=axes.get_xaxis_transform())
        axes.set_yscale("log")
        axes.set_xlabel("second")
        axes.set_ylabel("ms")
        axes.set_title(f"{run['highest'] / 2:.0f} acquisitions a second, half of the highest rate; one of three masters")
        axes.legend(loc="lower right", fontsize=7)


def growth_lines(growth):
    return [[one["what"], str(one["count"]), f"{one['redlockd_mb']:.1f}", f"{one['masters_mb']:.1f}", one.get("note", "")] for one in growth or []]


def watch_lines(watch):
    for count in sorted({one["watchers"] for one in watch or []}):
        found = [one for one in watch if one["watchers"] == count]
        yield [f"{count:,}", *(spread([one[name] for one in found], digits) for name, digits in
                               (("scripts_per_change", 2), ("cpu_redlockd", 2), ("cpu_masters", 3), ("events_per_s", 0), ("alone_ms", 1), ("last_ms", 1)))]


def share_lines(share):
    for what in dict.fromkeys(one["what"] for one in share or []):
        found = [one for one in share if one["what"] == what]
        yield [what, spread([one["requests"] / one["seconds"] for one in found]), *(
            spread([one[name] for one in found], digits) if name in found[0] else ""
            for name, digits in (("scripts", 2), ("cpu_us_service", 1), ("cpu_us_masters", 1), ("held", 3), ("next_ms", 2)))]


def tail_lines(tails):
    for name, found in tail_segments(tails).items():
        first, last = found[0]["from_s"], found[0]["to_s"]
        worst = max((one for run in tails for one in run["by_second"][first:last] if one["answered"]), key=lambda one: one["took_us"]["p99"])
        yield [name, f"{first}…{last}", *(spread([one["took_us"][figure] for one in found]) for figure in ("median", "p99", "p999")), spread([*map(tail_ratio, found)], 1),
               str(sum(map(tail_errors, found))), str(worst["from_s"]), f"{worst['took_us']['p99']:.0f}", f"{worst['took_us']['max']:.0f}", f"{worst['late_us']:.0f}",
               spread([one["others"] for one in found], 2)]


def tail_events(tails):
    return [[str(number), f"{run['highest'] / 2:.0f}", "; ".join(f"{second:.2f} s {TAIL_FAULTS.get(what, what)}" for second, what in run["events"])]
            for number, run in enumerate(tails or [], 1)]


def write(result, folder):
    figures = Figures(result["measurements"])
    text = ["## Aims\n", table(["aim", "median (lowest…highest of the rounds)", "reached"], aim_lines(result)), "## Growth\n",
            table(["what", "how many", "redlockd, MB resident", "a master, MB used", ""], growth_lines(result["growth"])), "## Watchers\n",
            table(WATCH_HEAD, watch_lines(result["watch"])), "## Held by many\n", table(SHARE_HEAD, share_lines(result["share"])), "## Half of the highest rate\n",
            table(TAIL_HEAD, tail_lines(result["tails"])), table(["run", "a second", "when what was done to the master, and its state"], tail_events(result["tails"])), "## All\n", table(HEAD, rows(figures))]
    (folder / "bench.md").write_text("\n".join(text))
    plot(figures, folder)
    if result["tails"]:
        plot_tails(result["tails"][-1], folder)
    print("\n".join(text))
