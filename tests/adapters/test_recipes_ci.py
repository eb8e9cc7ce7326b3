# SPDX-License-Identifier: MIT
"""The steps of docs/how-to/recipes/ci-jobs.md, as GitLab, GitHub and Jenkins give them to a shell."""

import os
import re
import signal

import yaml

from recipes import Page, bench  # noqa: F401

PAGE = Page("ci-jobs")


def gitlab_step():
    command, = yaml.safe_load(PAGE.block("yaml", "$CI_JOB_ID"))["deploy"]["script"]
    return command, {"CI_JOB_ID": "7"}


def github_step():
    job = yaml.safe_load(PAGE.block("yaml", "$GITHUB_RUN_ID"))["jobs"]["deploy"]
    assert set(job["env"]) == {"REDLOCKCTL_SERVER", "REDLOCKCTL_API_KEY"}
    command, = [step["run"] for step in job["steps"] if "run" in step]
    return command, {"GITHUB_RUN_ID": "8"}


def jenkins_step():
    command, = re.findall(r"^ *sh '(.*)'$", PAGE.block("groovy"), re.M)
    return command, {"BUILD_TAG": "9"}


STEPS = [gitlab_step, github_step, jenkins_step]


def test_three_systems_deploy_one_after_another(bench):
    """The first one is killed in the middle."""
    jobs = []
    for number, step in enumerate(STEPS):
        machine = bench.machine(step.__name__)
        bench.work(machine / "deploy.sh")
        command, env = step()
        jobs.append(bench.start(machine, command, env))
        if number == 0:
            first, = bench.begun()
        else:
            bench.until_waiting("deploy/prod", number)
    assert bench.state("deploy/prod")["owner"] == "gitlab 7"
    os.kill(first, signal.SIGKILL)
    assert jobs[0].wait() == 128 + signal.SIGKILL
    for number, owner in ((1, "github 8"), (2, "jenkins 9")):
        pid = bench.begun(number + 1)[-1]
        assert bench.state("deploy/prod")["owner"] == owner
        bench.proceed(pid)
        assert jobs[number].wait() == 0
    assert len(bench.lines("end")) == 2
    fences = [int(fence) for _, fence in bench.lines("begin")]
    assert fences == sorted(set(fences)) and fences[0] > 0


def test_a_job_whose_lock_is_lost_fails(bench):
    machine = bench.machine("one")
    bench.work(machine / "deploy.sh")
    command, env = gitlab_step()
    job = bench.start(machine, command.replace(" --wait", " --ttl 6s --wait"), env)
    bench.begun()
    assert bench.service.curl("DELETE", "/locks/deploy/prod?force=true").status == 204
    assert job.wait() == 79
    assert bench.lines("end") == []
