# SPDX-License-Identifier: MIT
"""The store of Symfony Lock with Debian's Symfony Lock."""

from phpunit import phpunit


def test_the_contract_of_a_store_while_a_master_dies(lab):
    """After the first test two of three masters are left."""
    daemon = lab.service(3)

    def kill_one():
        daemon.masters[0].kill()
        daemon.wait_voting(2)
    before, after = phpunit(lab, daemon, "RedlockdStoreTest.php", kill_one)
    assert before == 1 and after > 20
