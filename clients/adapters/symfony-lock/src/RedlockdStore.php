<?php
// SPDX-License-Identifier: MIT

namespace Redlockd\Symfony;

use Redlockd\Client;
use Redlockd\InvalidRequest;
use Redlockd\Lease;
use Redlockd\Locked;
use Redlockd\LockLost;
use Redlockd\RedlockdException;
use Symfony\Component\Lock\BlockingSharedLockStoreInterface;
use Symfony\Component\Lock\BlockingStoreInterface;
use Symfony\Component\Lock\Exception\InvalidTtlException;
use Symfony\Component\Lock\Exception\LockAcquiringException;
use Symfony\Component\Lock\Exception\LockConflictedException;
use Symfony\Component\Lock\Exception\LockReleasingException;
use Symfony\Component\Lock\Exception\LockStorageException;
use Symfony\Component\Lock\Key;
use Symfony\Component\Lock\Store\ExpiringStoreTrait;

/**
 * Stores the locks of Symfony in redlockd. The state of a key is the token of its lease, its fence and its mode, so
 * that a key can be serialized and handed to another process. The end of a lease is counted in the process that took
 * it.
 */
final class RedlockdStore implements BlockingStoreInterface, BlockingSharedLockStoreInterface
{
    use ExpiringStoreTrait;

    private const OPTIONS = ['ttl' => 1, 'wait' => 1, 'margin' => 1, 'owner' => 1, 'metadata' => 1];

    private Client $client;
    private array $options;
    /** @var array<string, Lease> by token: of the keys that were saved here, or in the process that forked this one */
    private array $leases = [];

    /**
     * @param array $options those of Client::acquire(): `ttl` (until the first putOffExpiration()), `margin`, `owner`,
     *                       `metadata`, and `wait`, for acquire(true): as long as it is held, if none is given
     */
    public function __construct(Client $client, array $options = [])
    {
        foreach (array_diff_key($options, self::OPTIONS) as $option => $_) {
            $known = implode(', ', array_keys(self::OPTIONS));
            throw new \InvalidArgumentException("there is no option '$option': the options are $known");
        }
        [$this->client, $this->options] = [$client, $options + ['wait' => INF]];
    }

    public function save(Key $key): void
    {
        $this->take($key, false, 0.0);
    }

    public function waitAndSave(Key $key): void
    {
        $this->take($key, false, $this->options['wait']);
    }

    public function saveRead(Key $key): void
    {
        $this->take($key, true, 0.0);
    }

    public function waitAndSaveRead(Key $key): void
    {
        $this->take($key, true, $this->options['wait']);
    }

    /** Never shortens the lease, but the key expires after `$ttl` seconds. */
    public function putOffExpiration(Key $key, float $ttl): void
    {
        if (!($ttl > 0)) {
            throw new InvalidTtlException(sprintf('ttl must be a positive number of seconds: %s', $ttl));
        }
        if (!$key->hasState(__CLASS__)) {
            throw new LockConflictedException(sprintf('The lock "%s" is not held.', $key));
        }
        try {
            $this->extend($key, $ttl);
        } catch (LockLost $error) {
            $this->forget($key);
            $key->reduceLifetime(0);
            throw new LockConflictedException($error->getMessage(), 0, $error);
        } catch (RedlockdException | \InvalidArgumentException $error) {
            $this->reduceToTheOldEnd($key);
            $detail = sprintf('The lock "%s" was not extended: %s', $key, $error->getMessage());
            throw $error instanceof InvalidRequest || $error instanceof \InvalidArgumentException
                ? new InvalidTtlException($detail, 0, $error) : new LockStorageException($detail, 0, $error);
        }
        $this->checkNotExpired($key);
    }

    /** Asks a server. A lock of which none can tell counts as not held. */
    public function exists(Key $key): bool
    {
        if (!$key->hasState(__CLASS__) || $key->isExpired()) {
            return false;
        }
        try {
            $lease = $this->lease($key);
            $lease === null ? $this->resume($key) : $lease->verify();
        } catch (RedlockdException $error) {
            return false;
        }
        return !$key->isExpired();
    }

    public function delete(Key $key): void
    {
        if (!$key->hasState(__CLASS__)) {
            return;
        }
        try {
            $released = ($this->lease($key) ?? $this->resume($key))->release();
        } catch (LockLost $error) {
            $released = false; // another process had it, and it is over
        } catch (RedlockdException $error) {
            throw new LockReleasingException(sprintf('The lock "%s": %s', $key, $error->getMessage()), 0, $error);
        } finally {
            $this->forget($key);
        }
        if ($released === null) {
            throw new LockReleasingException(sprintf('The lock "%s" ends by itself: no server released it.', $key));
        }
    }

    /** The fence of the lease: larger than that of every holder before. Send it with each write. */
    public function fence(Key $key): ?int
    {
        return $key->hasState(__CLASS__) ? $key->getState(__CLASS__)['fence'] : null;
    }

    private function take(Key $key, bool $shared, float $wait): void
    {
        if ($key->hasState(__CLASS__)) {
            if ($key->getState(__CLASS__)['shared'] === $shared && $this->isExtended($key)) {
                $this->checkNotExpired($key);
                return;
            }
            // One lease at a time: the other mode is given back first, and if somebody else is faster, none is left.
            $this->delete($key);
        }
        try {
            $options = ['wait' => $wait] + $this->options + ($shared ? ['mode' => 'shared'] : []);
            $lease = $this->client->acquire((string) $key, $options);
        } catch (Locked $error) {
            throw new LockConflictedException($error->getMessage(), 0, $error);
        } catch (RedlockdException | \InvalidArgumentException $error) {
            throw new LockAcquiringException(sprintf('The lock "%s": %s', $key, $error->getMessage()), 0, $error);
        }
        $this->keep($key, $lease, $shared);
        $key->reduceLifetime($lease->remaining());
        $this->checkNotExpired($key);
    }

    /** False: the lease is over, and the key can take another one. */
    private function isExtended(Key $key): bool
    {
        try {
            $this->extend($key, null);
        } catch (LockLost $error) {
            $this->forget($key);
            return false;
        } catch (RedlockdException $error) {
            $this->reduceToTheOldEnd($key);
            throw new LockAcquiringException(sprintf('The lock "%s": %s', $key, $error->getMessage()), 0, $error);
        }
        return true;
    }

    private function extend(Key $key, ?float $ttl): void
    {
        $lease = $this->lease($key);
        if ($lease === null) {
            $lease = $this->resume($key, $ttl);
        } else { // no less than is left: a server refuses a ttl that is too short
            $lease->refresh($ttl === null ? $this->options['ttl'] ?? null : max($ttl, $lease->remaining()));
        }
        $key->reduceLifetime(min($ttl ?? INF, $lease->remaining()));
    }

    /** The lease, if it was saved here; that of a forked child is lost. */
    private function lease(Key $key): ?Lease
    {
        return $this->leases[$key->getState(__CLASS__)['token']] ?? null;
    }

    /** The lease of a key that another process has saved. Without a ttl its end stays about where it is. */
    private function resume(Key $key, ?float $ttl = null): Lease
    {
        $state = $key->getState(__CLASS__);
        $lifetime = $key->getRemainingLifetime();
        $ttl = $ttl ?? ($lifetime !== null && $lifetime > 0.001 ? $lifetime : null);
        return $this->keep($key, $this->client->resume((string) $key, $state['token'], $ttl), $state['shared']);
    }

    private function keep(Key $key, Lease $lease, bool $shared): Lease
    {
        if (count($this->leases) % 256 === 255) { // keys that expired and were never deleted
            $this->leases = array_filter($this->leases, [self::class, 'isNeeded']);
        }
        $this->leases[$lease->detach()] = $lease; // the Lock decides whether it is released at the end
        $key->setState(__CLASS__, ['token' => $lease->token(), 'fence' => $lease->fence(), 'shared' => $shared]);
        return $lease;
    }

    /** Also the one of a parent: its token must not count as one that was handed over. */
    private static function isNeeded(Lease $lease): bool
    {
        try {
            $lease->check();
        } catch (LockLost $error) {
            return $error->cause() === 'forked';
        }
        return true;
    }

    private function forget(Key $key): void
    {
        unset($this->leases[$key->getState(__CLASS__)['token']]);
        $key->removeState(__CLASS__);
    }

    /** A Lock has reset the lifetime. What is not known to be extended ends as before. */
    private function reduceToTheOldEnd(Key $key): void
    {
        $lease = $this->lease($key);
        $key->reduceLifetime($lease === null ? 0 : $lease->remaining());
    }
}
