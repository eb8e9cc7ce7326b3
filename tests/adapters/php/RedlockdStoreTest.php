<?php
// SPDX-License-Identifier: MIT
// What Symfony Lock asks of a store that expires, blocks and shares, with a real redlockd at REDLOCKD_URL. The cases
// are those of its own abstract tests of stores, written anew. No test sleeps: an end is awaited.

use PHPUnit\Framework\TestCase;
use Redlockd\Client;
use Redlockd\Symfony\RedlockdStore;
use Symfony\Component\Lock\Exception\InvalidTtlException;
use Symfony\Component\Lock\Exception\LockAcquiringException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockExpiredException;
use Symfony\Component\Lock\Exception\LockReleasingException;
use Symfony\Component\Lock\Exception\LockStorageException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\LockFactory;

final class RedlockdStoreTest extends TestCase
{
    private Client $client;
    private RedlockdStore $store;

    protected function setUp(): void
    {
        $this->client = new Client((string) getenv('REDLOCKD_URL'));
        $this->store = new RedlockdStore($this->client, ['ttl' => 30]);
    }

    // ---- a store ----

    public function testSave(): void
    {
        $key = self::key();
        self::assertFalse($this->store->exists($key));
        $this->store->save($key);
        self::assertTrue($this->store->exists($key));
        $this->store->delete($key);
        self::assertFalse($this->store->exists($key));
        self::assertFalse($this->state($key)['held']);
    }

    public function testSaveWithDifferentResources(): void
    {
        [$one, $two] = [self::key(), self::key()];
        $this->store->save($one);
        self::assertTrue($this->store->exists($one));
        self::assertFalse($this->store->exists($two));
        $this->store->save($two);
        $this->store->delete($one);
        self::assertFalse($this->store->exists($one));
        self::assertTrue($this->store->exists($two));
        $this->store->delete($two);
        self::assertFalse($this->store->exists($two));
    }

    public function testSaveWithDifferentKeysOnSameResource(): void
    {
        [$one, $two] = self::keys();
        $this->store->save($one);
        self::assertTrue($this->store->exists($one));
        self::assertFalse($this->store->exists($two));
        $this->assertConflict(function () use ($two): void {
            $this->store->save($two);
        });
        self::assertTrue($this->store->exists($one), 'the holder keeps it');
        self::assertFalse($this->store->exists($two));
        $this->store->delete($one);
        $this->store->save($two);
        self::assertFalse($this->store->exists($one));
        self::assertTrue($this->store->exists($two));
        $this->store->delete($two);
    }

    public function testSaveTwiceKeepsTheLease(): void
    {
        $key = self::key();
        $this->store->save($key);
        $fence = $this->store->fence($key);
        $this->store->save($key);
        self::assertSame($fence, $this->store->fence($key));
        self::assertSame($fence, $this->state($key)['fence']);
        $this->store->delete($key);
        self::assertFalse($this->state($key)['held']);
    }

    public function testDeleteOfAKeyThatIsNotHeld(): void
    {
        [$one, $two] = self::keys();
        $this->store->save($one);
        $this->store->delete($two);
        self::assertTrue($this->store->exists($one));
        $this->store->delete($one);
        $this->store->delete($one);
        self::assertFalse($this->store->exists($one));
    }

    public function testDeleteOfALeaseThatAnotherHas(): void
    {
        [$one, $two] = self::keys();
        $this->store->save($one);
        $this->client->force((string) $one);
        $this->store->save($two);
        $this->store->delete($one);
        self::assertTrue($this->store->exists($two));
        $this->store->delete($two);
    }

    public function testAForcedReleaseShows(): void
    {
        $key = self::key();
        $this->store->save($key);
        $this->client->force((string) $key);
        self::assertFalse($this->store->exists($key));
        $this->assertConflict(function () use ($key): void {
            $this->store->putOffExpiration($key, 30);
        });
        self::assertTrue($key->isExpired());
    }

    public function testASaveAfterALossTakesItAnew(): void
    {
        $key = self::key();
        $this->store->save($key);
        $fence = $this->store->fence($key);
        $this->client->force((string) $key);
        $this->store->save($key);
        self::assertGreaterThan($fence, $this->store->fence($key));
        $this->store->delete($key);
    }

    public function testExistsDoesNotExtend(): void
    {
        $key = self::key();
        $this->store->save($key);
        $left = $this->state($key)['remaining_ms'];
        for ($turn = 0; $turn < 20; ++$turn) {
            self::assertTrue($this->store->exists($key));
            $now = $this->state($key)['remaining_ms'];
            self::assertLessThanOrEqual($left, $now);
            $left = $now;
        }
        $this->store->delete($key);
    }

    // ---- expiry ----

    public function testExpiration(): void
    {
        $key = self::key();
        $store = new RedlockdStore($this->client, ['ttl' => 2]);
        $store->save($key);
        $store->putOffExpiration($key, 4);
        self::assertTrue($store->exists($key));
        self::await(function () use ($store, $key): bool {
            return !$store->exists($key);
        });
        self::assertTrue($key->isExpired());
        self::await(function () use ($key): bool {
            return !$this->state($key)['held'];
        });
    }

    public function testTheKeyExpiresThoughTheLeaseIsNotShortened(): void
    {
        $key = self::key();
        $this->store->save($key);
        $this->store->putOffExpiration($key, 0.5);
        self::await([$key, 'isExpired']);
        self::assertFalse($this->store->exists($key));
        self::assertTrue($this->state($key)['held'], 'nobody else has it');
        $this->store->delete($key);
        self::assertFalse($this->state($key)['held']);
    }

    public function testSetExpiration(): void
    {
        $key = self::key();
        $this->store->save($key);
        self::assertGreaterThan(20, $key->getRemainingLifetime());
        self::assertLessThanOrEqual(27, $key->getRemainingLifetime(), 'a tenth is the margin');
        $key->resetLifetime();
        $this->store->putOffExpiration($key, 50);
        self::assertGreaterThan(35, $key->getRemainingLifetime());
        self::assertLessThanOrEqual(45, $key->getRemainingLifetime());
        $this->store->delete($key);
    }

    public function testExpiredLockCleaned(): void
    {
        [$one, $two] = self::keys();
        $this->store->save($one);
        $one->reduceLifetime(0);
        try {
            $this->store->save($one);
            self::fail('an expired key was saved');
        } catch (LockExpiredException $error) {
            self::assertFalse($this->store->exists($one));
        }
        $this->store->save($two);
        $this->store->delete($two);
    }

    public function testAnExpirationThatTheServerDoesNotTake(): void
    {
        $key = self::key();
        $this->store->save($key);
        foreach ([-1.0, 0.0, 3600.0, INF] as $ttl) {
            try {
                $key->resetLifetime();
                $this->store->putOffExpiration($key, $ttl);
                self::fail("$ttl was taken");
            } catch (InvalidTtlException $error) {
                self::assertStringContainsString('ttl', $error->getMessage());
                self::assertStringNotContainsString('_ms', $error->getMessage());
            }
        }
        self::assertGreaterThan(0, $key->getRemainingLifetime(), 'the old end');
        self::assertTrue($this->store->exists($key));
        $this->store->delete($key);
    }

    public function testAnExpirationOfNearlyNothingAborts(): void
    {
        foreach ([0.000001, 0.0001] as $ttl) {
            $key = self::key();
            $this->store->save($key);
            try {
                $this->store->putOffExpiration($key, $ttl);
                usleep(1000);
                self::assertTrue($key->isExpired());
                $this->store->delete($key);
            } catch (LockExpiredException $error) {
                self::assertTrue($key->isExpired());
            }
            self::assertFalse($this->state($key)['held'], 'it is given back');
        }
    }

    public function testAnExpirationShorterThanTheServerGrants(): void
    {
        $key = self::key();
        $this->store->save($key);
        $this->store->putOffExpiration($key, 0.05); // the server takes 0.1 s or more, and has it for longer anyway
        self::assertLessThanOrEqual(0.05, $key->getRemainingLifetime());
        $key->resetLifetime();
        $this->store->putOffExpiration($key, 40);
        self::assertGreaterThan(30, $key->getRemainingLifetime());
        $this->store->delete($key);
    }

    public function testPutOffOfAKeyThatIsNotHeld(): void
    {
        $this->assertConflict(function (): void {
            $this->store->putOffExpiration(self::key(), 30);
        });
    }

    // ---- waiting ----

    public function testWaitAndSaveWaitsInTheQueue(): void
    {
        [$one, $two] = self::keys();
        $this->store->save($one);
        $pid = pcntl_fork();
        if ($pid === 0) { // a holder that gives it back as soon as somebody waits
            $client = new Client((string) getenv('REDLOCKD_URL'));
            self::await(static function () use ($client, $one): bool {
                return $client->state((string) $one)['waiters'] === 1;
            });
            $client->force((string) $one);
            posix_kill((int) getmypid(), SIGKILL); // nothing of PHPUnit runs here
        }
        $this->store->waitAndSave($two);
        pcntl_waitpid($pid, $status);
        self::assertTrue($this->store->exists($two));
        self::assertFalse($this->store->exists($one));
        $this->store->delete($two);
    }

    public function testAWaitThatIsOver(): void
    {
        [$one, $two] = self::keys();
        $this->store->save($one);
        $impatient = new RedlockdStore($this->client, ['wait' => 0.2]);
        $this->assertConflict(function () use ($impatient, $two): void {
            $impatient->waitAndSave($two);
        });
        $this->store->delete($one);
        $this->store->waitAndSave($two); // the queue keeps the place of the other wait for two seconds
        self::assertTrue($this->store->exists($two));
        $this->store->delete($two);
    }

    // ---- sharing ----

    public function testReadersShare(): void
    {
        [$one, $two] = self::keys();
        $writer = new Key((string) $one);
        $this->store->saveRead($one);
        $this->store->saveRead($two);
        self::assertTrue($this->store->exists($one));
        self::assertTrue($this->store->exists($two));
        foreach ([$one, $two] as $reader) {
            $this->assertConflict(function () use ($writer): void {
                $this->store->save($writer);
            });
            $this->store->delete($reader);
            self::assertFalse($this->store->exists($reader));
        }
        $this->store->save($writer);
        $this->assertConflict(function () use ($one): void {
            $this->store->saveRead($one);
        });
        $this->store->delete($writer);
        $this->store->waitAndSaveRead($one);
        self::assertTrue($this->store->exists($one));
        $this->store->putOffExpiration($one, 40);
        $this->store->delete($one);
    }

    public function testPromotionWithAnotherReader(): void
    {
        [$one, $two] = self::keys();
        $this->store->saveRead($one);
        $this->store->saveRead($two);
        $this->assertConflict(function () use ($one): void {
            $this->store->save($one);
        });
        self::assertFalse($this->store->exists($one), 'its shared lease was given back');
        self::assertTrue($this->store->exists($two));
        $this->store->delete($two);
        self::assertFalse($this->state($one)['held'], 'nothing is left');
    }

    public function testPromotionAlone(): void
    {
        [$one, $two] = self::keys();
        $this->store->saveRead($one);
        $this->store->save($one);
        $this->assertConflict(function () use ($two): void {
            $this->store->saveRead($two);
        });
        self::assertTrue($this->store->exists($one));
        self::assertSame('exclusive', $this->state($one)['mode']);
        $this->store->delete($one);
        self::assertFalse($this->state($one)['held'], 'it had one lease');
    }

    public function testDemotion(): void
    {
        [$one, $two] = self::keys();
        $this->store->save($one);
        $this->store->saveRead($one);
        $this->store->saveRead($two);
        self::assertTrue($this->store->exists($one));
        self::assertTrue($this->store->exists($two));
        $this->store->delete($one);
        $this->store->delete($two);
        self::assertFalse($this->state($one)['held']);
    }

    // ---- other processes ----

    public function testASerializedKeyIsHandedOver(): void
    {
        $key = self::key();
        $this->store->save($key);
        $fence = $this->store->fence($key);
        $copy = unserialize(serialize($key));
        $elsewhere = new RedlockdStore(new Client((string) getenv('REDLOCKD_URL')));
        self::assertTrue($elsewhere->exists($copy));
        self::assertSame($fence, $elsewhere->fence($copy));
        $elsewhere->putOffExpiration($copy, 40);
        self::assertGreaterThan(30, $this->state($key)['remaining_ms'] / 1000);
        $elsewhere->delete($copy);
        self::assertFalse($this->store->exists($key));
        self::assertFalse((new RedlockdStore($this->client))->exists(unserialize(serialize($key))));
    }

    public function testAForkedChildHasNoLease(): void
    {
        $lock = (new LockFactory($this->store))->createLock('fork/' . bin2hex(random_bytes(8)), 30);
        self::assertTrue($lock->acquire());
        $pid = pcntl_fork();
        if ($pid === 0) {
            $acquired = $lock->isAcquired();
            $lock->__destruct();
            $lock->release();
            pcntl_exec('/bin/sh', ['-c', $acquired ? 'exit 1' : 'exit 0']); // nothing of PHPUnit runs here
        }
        pcntl_waitpid($pid, $status);
        self::assertSame(0, pcntl_wexitstatus($status), 'the child has it not');
        self::assertTrue($lock->isAcquired(), 'the parent has it');
        $lock->release();
    }

    // ---- Symfony's Lock on top ----

    public function testALock(): void
    {
        $factory = new LockFactory($this->store);
        $name = 'lock/' . bin2hex(random_bytes(8));
        [$one, $two] = [$factory->createLock($name, 20), $factory->createLock($name, 20)];
        self::assertTrue($one->acquire());
        self::assertFalse($two->acquire());
        self::assertTrue($one->isAcquired());
        self::assertFalse($one->isExpired());
        $one->refresh();
        $one->release();
        self::assertTrue($two->acquireRead());
        self::assertTrue($one->acquireRead());
        unset($two);
        self::assertTrue($one->acquire(), 'the other one was released when nobody had it any more');
        $one->release();
        self::assertFalse($this->client->state($name)['held']);
    }

    public function testTheDefaultTtlOfSymfonyIsMoreThanTheServerAllows(): void
    {
        $name = 'lock/' . bin2hex(random_bytes(8));
        $lock = (new LockFactory($this->store))->createLock($name); // 300 s
        try {
            $lock->acquire();
            self::fail('it was granted');
        } catch (LockAcquiringException $error) {
            $said = $error->getPrevious()->getPrevious();
            self::assertStringContainsString('ttl: must be from 0.1 s to 60 s', $said->getMessage());
        }
        unset($lock, $error, $said);
        gc_collect_cycles();
        self::assertFalse($this->client->state($name)['held'], 'it is given back');
    }

    // ---- failures ----

    public function testNoServerAnswers(): void
    {
        $nowhere = new Client('unix:/nonexistent/redlockd');
        $store = new RedlockdStore($nowhere);
        $key = self::key();
        foreach (['save', 'saveRead'] as $call) {
            try {
                $store->$call($key);
                self::fail('it was granted');
            } catch (LockAcquiringException $error) {
                self::assertStringContainsString('no answer of redlockd', $error->getMessage());
            }
        }
        $this->store->save($key); // the key of a lease that the other store cannot reach
        self::assertFalse($store->exists($key));
        try {
            $key->resetLifetime();
            $store->putOffExpiration($key, 30);
            self::fail('it was extended');
        } catch (LockStorageException $error) {
            self::assertTrue($key->isExpired(), 'nothing is known of its end');
        }
        try {
            $store->delete($key);
            self::fail('it was released');
        } catch (LockReleasingException $error) {
            self::assertFalse($store->exists($key));
        }
    }

    public function testANameThatIsNoText(): void
    {
        foreach (["\xff" => 'UTF-8', "a\nb" => 'control characters'] as $name => $why) {
            try {
                $this->store->save(new Key((string) $name));
                self::fail('it was granted');
            } catch (LockAcquiringException $error) {
                self::assertStringContainsString($why, $error->getMessage());
            }
        }
    }

    public function testAnOptionThatDoesNotExist(): void
    {
        $this->expectException(InvalidArgumentException::class);
        $this->expectExceptionMessage("no option 'mode'");
        new RedlockdStore($this->client, ['mode' => 'shared']);
    }

    // ---- help ----

    private static function key(): Key
    {
        return new Key('store/' . bin2hex(random_bytes(8)));
    }

    /** @return Key[] of one resource */
    private static function keys(): array
    {
        $key = self::key();
        return [$key, new Key((string) $key)];
    }

    private function state(Key $key): array
    {
        return $this->client->state((string) $key);
    }

    private function assertConflict(callable $call): void
    {
        try {
            $call();
        } catch (LockConflictedException $error) {
            $this->addToAssertionCount(1);
            return;
        }
        self::fail('there was no conflict');
    }

    private static function await(callable $condition): void
    {
        $until = hrtime(true) + 1e9 * (float) getenv('PATIENCE');
        while (!$condition()) {
            if (hrtime(true) > $until) {
                throw new RuntimeException('it does not come');
            }
            usleep(5000);
        }
    }
}
