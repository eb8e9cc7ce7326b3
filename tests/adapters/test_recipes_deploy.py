# SPDX-License-Identifier: MIT
"""docs/how-to/recipes/database-migrations.md with Alembic, and terraform.md with Terraform where it is installed."""

import os
import shutil
import signal
import sqlite3

import pytest

from recipes import Page, bench  # noqa: F401

MIGRATIONS = Page("database-migrations")
TERRAFORM = Page("terraform")

INI = "[alembic]\nscript_location = migrations\nsqlalchemy.url = sqlite:///{database}\n"
ENV = """
from alembic import context
from sqlalchemy import create_engine

with create_engine(context.config.get_main_option("sqlalchemy.url")).connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""
MIGRATION = """
import subprocess
import sqlalchemy
from alembic import op

revision, down_revision = "1", None


def upgrade():
    subprocess.run(["convert"], check=True)
    op.create_table("stock", sqlalchemy.Column("item", sqlalchemy.String))
"""


def instance(bench, name):
    """An instance of the application, with its migrations, on the database that all have."""
    machine = bench.machine(name)
    (machine / "migrations" / "versions").mkdir(parents=True)
    (machine / "alembic.ini").write_text(INI.format(database=bench.folder / "shop.db"), encoding="utf-8")
    (machine / "migrations" / "env.py").write_text(ENV, encoding="utf-8")
    (machine / "migrations" / "versions" / "one.py").write_text(MIGRATION, encoding="utf-8")
    MIGRATIONS.save(machine)
    return machine


@pytest.fixture
def shop(bench):
    """Two instances. The migration is the work; the application says that it runs."""
    bench.work("convert")
    server = bench.programs / "shop-server"
    server.write_text("#!/bin/sh\necho the shop is open\n", encoding="utf-8")
    server.chmod(0o755)
    return [instance(bench, name) for name in ("one", "two")]


def tables(bench):
    with sqlite3.connect(bench.folder / "shop.db") as database:
        return {name for name, in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_one_instance_migrates_and_all_start(bench, shop):
    jobs = [bench.start(shop[0], MIGRATIONS.block("sh"))]
    migration, = bench.begun()
    jobs.append(bench.start(shop[1], MIGRATIONS.block("sh")))
    bench.until_waiting("migrate/shop")
    assert "the shop is open" not in jobs[0].output() + jobs[1].output()
    bench.proceed(migration)
    assert [job.wait() for job in jobs] == [0, 0]
    assert ["the shop is open" in job.output() for job in jobs] == [True, True]
    assert len(bench.lines("begin")) == 1
    assert tables(bench) == {"alembic_version", "stock"}


def test_the_next_instance_migrates_if_the_first_one_is_killed(bench, shop):
    first = bench.start(shop[0], MIGRATIONS.block("sh"))
    bench.begun()
    second = bench.start(shop[1], MIGRATIONS.block("sh"))
    bench.until_waiting("migrate/shop")
    alembic, = first.below("alembic")
    os.kill(alembic, signal.SIGKILL)
    assert first.wait() == 128 + signal.SIGKILL
    bench.proceed(bench.begun(2)[1])
    assert second.wait() == 0
    assert ("the shop is open" in first.output(), "the shop is open" in second.output()) == (False, True)
    assert tables(bench) == {"alembic_version", "stock"}


CONFIGURATION = """
resource "terraform_data" "job" {
  provisioner "local-exec" {
    command = "rollout"
  }
}
"""


@pytest.mark.skipif(not shutil.which("terraform"), reason="terraform is not installed")
def test_plan_and_apply_are_one(bench):
    """Of two copies of one configuration. The first one loses its redlockctl in the middle: Terraform ends first."""
    bench.work("rollout")
    bench.environment |= {"TF_CLI_CONFIG_FILE": "/dev/null", "CHECKPOINT_DISABLE": "1"}
    jobs = []
    for name in ("one", "two"):
        copy = bench.machine(name)
        (copy / "main.tf").write_text(CONFIGURATION, encoding="utf-8")
        assert bench.start(copy, "terraform init -input=false").wait() == 0
        jobs.append(bench.start(copy, TERRAFORM.block("sh")))
        if name == "one":
            bench.begun()
    bench.until_waiting("tf/prod")
    os.kill(jobs[0].below("redlockctl")[0], signal.SIGKILL)
    bench.proceed(bench.begun(2)[1])
    assert jobs[1].wait() == 0
    assert "Apply complete! Resources: 1 added" in jobs[1].output()
    assert "Gracefully shutting down" in jobs[0].output()
    assert "Apply complete!" not in jobs[0].output()
