"""The example programs of all languages at once."""

from programs import FILES
from test_programs import store, url_of  # noqa: F401


def test_all_languages_exclude_each_other(service, resource, programs, store):
    runs = [programs.start(language, url_of(service), resource, store, steps=4, step_ms=50, wait_ms=60000) for language in FILES for _ in range(2)]
    try:
        assert [run.end(90) for run in runs] == [0] * len(runs)
    finally:
        for run in runs:
            run.kill()
    assert store.amount == 4 * len(runs)
    assert [fence for _, _, fence in store.writes()] == sorted([run.fence for run in runs] * 4)
