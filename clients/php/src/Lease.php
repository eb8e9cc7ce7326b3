<?php
// SPDX-License-Identifier: MIT

namespace Redlockd;

/**
 * A lock that is held until its validity is over: nothing renews it but refresh(). It belongs to the process that took
 * it. A forked child has no lease of its parent, and releases none. One that is not released yet is released at the
 * end of the program; no destructor does so.
 */
final class Lease
{
    private const RELEASE_TIMEOUT = 2.0; // seconds

    private Servers $servers;
    private Wanted $wanted;
    private string $token;
    private int $fence = 0;
    private ?int $slot = null;
    private int $process;
    private float $ttl = 0.0;
    /** From then on it is lost; null: before the first refresh() of one that another process took. */
    private ?float $stop = null;
    private float $keepUntil = -INF;
    private int $waiters = 0;
    private bool $released = false;
    /** The last refresh() gave less than was asked for. */
    private bool $bounded = false;
    /** Of the last refresh(). */
    private ?RedlockdException $failure = null;
    /** @var ?array{string, string, ?RedlockdException} text, cause and error; once it is lost, it stays lost */
    private ?array $loss = null;

    private function __construct(Servers $servers, Wanted $wanted, string $token)
    {
        [$this->servers, $this->wanted, $this->token] = [$servers, $wanted, $token];
        $this->process = (int) getmypid();
    }

    /** @internal */
    public static function granted(Servers $servers, Wanted $wanted, \stdClass $answer, float $sent): self
    {
        $lease = new self($servers, $wanted, $answer->token);
        $now = Clock::now();
        $waited = 0.99 * ($answer->waited_ms ?? 0) / 1000; // the two clocks may differ by a hundredth
        $begin = $sent + min($waited, $now - $sent);
        [$lease->fence, $lease->slot, $lease->ttl] = [$answer->fence, $answer->slot ?? null, $answer->ttl_ms / 1000];
        $lease->stop = $begin + $answer->validity_ms / 1000 - $wanted->margin($lease->ttl);
        $lease->keepUntil = $now + $wanted->atLeast;
        $lease->hold();
        return $lease;
    }

    /** @internal */
    public static function resumed(Servers $servers, Wanted $wanted, string $token): self
    {
        $lease = new self($servers, $wanted, $token);
        $lease->refresh(isset($wanted->body['ttl_ms']) ? $wanted->body['ttl_ms'] / 1000 : null);
        $lease->hold();
        return $lease;
    }

    /** Larger than that of every holder before. Send it with each write to what the lock protects. */
    public function fence(): int
    {
        return $this->fence;
    }

    /** With `slots`: a number that no other holder has at the same time. */
    public function slot(): ?int
    {
        return $this->slot;
    }

    /** The secret that extends and releases it. */
    public function token(): string
    {
        return $this->token;
    }

    /** Seconds that the last refresh() or the acquisition asked for, as the server says. */
    public function ttl(): float
    {
        return $this->ttl;
    }

    /** How many waited for the lock at the last refresh(). */
    public function waiters(): int
    {
        return $this->waiters;
    }

    /** Seconds until it counts as lost, if it is not refreshed; 0 once it is lost. */
    public function remaining(): float
    {
        $left = ($this->stop ?? INF) - Clock::now();
        return $this->loss() === null ? max(0.0, $left) : 0.0;
    }

    /**
     * It asks no server: a forced release shows at the next refresh().
     *
     * @throws LockLost if the lease cannot be relied on any more
     */
    public function check(): void
    {
        $loss = $this->loss();
        if ($loss !== null) {
            throw new LockLost(...$loss);
        }
    }

    /**
     * Moves its end to `$ttl` seconds from now (its own where none is given). It never moves back.
     *
     * @throws LockLost          if the lease is over
     * @throws RedlockdException if no server extended it: the old end holds, and refresh() can be repeated
     */
    public function refresh(?float $ttl = null): void
    {
        $own = $ttl === null;
        $ttl = $ttl ?? ($this->ttl > 0 ? $this->ttl : null);
        if ($ttl !== null && !($ttl > 0 && $ttl <= Wanted::LARGEST / 1000)) {
            throw new \InvalidArgumentException("ttl must be a positive number of seconds: $ttl");
        }
        $ttlMs = $ttl === null ? null : max(1, (int) round(1000 * $ttl));
        try {
            [$extended, $sent] = $this->extend($ttlMs);
        } catch (InvalidRequest $refused) {
            $errors = array_filter((array) ($refused->problem()['errors'] ?? []), 'is_array');
            if (!$own || !in_array('ttl_ms', array_column($errors, 'field'), true)) {
                throw $refused;
            }
            $ttlMs = null; // the bounds of the server do not allow it any more: the server chooses one
            [$extended, $sent] = $this->extend(null);
        }
        [$this->waiters, $this->failure] = [$extended->waiters ?? 0, null];
        $this->bounded = $ttlMs !== null && $extended->ttl_ms < $ttlMs;
        $this->ttl = ($ttlMs ?? $extended->ttl_ms) / 1000;
        $this->fence = $this->fence ?: $extended->fence;
        $stop = $sent + $extended->validity_ms / 1000 - $this->wanted->margin($this->ttl);
        $this->stop = $this->stop === null ? $stop : max($this->stop, $stop);
        $this->check();
    }

    /**
     * Asks a server whether the lease still holds, also after a forced release, and leaves its end where it is.
     *
     * @throws LockLost          if the lease is over
     * @throws RedlockdException if no server can tell
     */
    public function verify(): void
    {
        $this->check();
        $this->extend((int) ceil(1000 * $this->remaining())); // it ends later already
    }

    /**
     * Gives the lock back. False: it was not held any more. Null: no server answers; it ends by itself. `$keep`:
     * seconds for which nobody gets the lock then.
     */
    public function release(float $keep = 0.0): ?bool
    {
        $end = $this->end($keep);
        return $end instanceof RedlockdException ? false : $end;
    }

    /** The end of the program does not release it. Another process can go on with the token: Client::resume(). */
    public function detach(): string
    {
        AtEnd::remove($this);
        return $this->token;
    }

    /**
     * Gives the lock back at the end of a block that ended well.
     *
     * @internal
     * @throws LockLost if the lease was lost meanwhile
     */
    public function leave(): void
    {
        $why = $this->released ? null : $this->loss();
        $end = $this->end(0.0);
        if ($end instanceof RedlockdException && $why === null) {
            $why = $this->why($end->getMessage(), $end->errorCode(), $end);
        }
        if ($why !== null) {
            throw new LockLost(...$why);
        }
    }

    public function __debugInfo(): array
    {
        return ['lock' => $this->wanted->text, 'fence' => $this->fence, 'remaining' => $this->remaining()];
    }

    public function __serialize(): array
    {
        throw new \LogicException('a lease belongs to its process: give the token to Client::resume() there');
    }

    private function isMine(): bool
    {
        return $this->process === getmypid();
    }

    /** The end of this program releases it. */
    private function hold(): void
    {
        AtEnd::add($this, function (): void {
            $this->end(0.0);
        }, function (): bool {
            return $this->stop + $this->ttl < Clock::now(); // the masters have forgotten it, too
        });
    }

    private function extension(?int $ttlMs, float $timeout): Ask
    {
        $body = $this->wanted->names + ($ttlMs === null ? [] : ['ttl_ms' => $ttlMs]);
        $ask = new Ask('PUT', '/locks', $timeout, $body, ['Lock-Token' => $this->token]);
        $ask->wrong = function (\stdClass $lease) use ($ttlMs): string {
            return $this->wanted->wrong($lease, $ttlMs, $this->token, null);
        };
        return $ask;
    }

    /**
     * One round: asks each server once, until one says whether the lease is extended or over.
     *
     * @return array{\stdClass, float} the lease in the answer, and when the request was sent
     */
    private function extend(?int $ttlMs): array
    {
        for ($turn = 0; $turn < $this->servers->count; ++$turn) {
            $this->check();
            $left = $this->remaining() / ($this->servers->count - $turn); // some for each server
            $fifth = $this->ttl > 0 ? $this->ttl / 5 : INF;
            $ask = $this->extension($ttlMs, min(5.0, $this->servers->timeout, $fifth, $left));
            $sent = Clock::now();
            $answer = $this->servers->ask($ask);
            if ($answer->status === 200) {
                $this->check(); // an answer that comes too late does not bring it back
                return [$answer->body, $sent];
            }
            $this->failure = Words::error($answer, $this->wanted->text);
            if ($answer->isFinal()) {
                $why = $this->why($this->failure->getMessage(), $this->failure->errorCode(), $this->failure);
                $this->loss = $this->loss() ?? $why;
            }
        }
        $this->check();
        throw $this->failure;
    }

    /**
     * True: it was released. An error: it was not held any more. False: it is over for this process. Null: nobody
     * knows.
     *
     * @return bool|RedlockdException|null
     */
    private function end(float $keep)
    {
        if (!($keep >= 0)) {
            throw new \InvalidArgumentException("keep must be a number of seconds from 0: $keep");
        }
        $this->detach();
        if ($this->released || !$this->isMine()) {
            return false;
        }
        $this->released = true; // from here on it does not count, whatever the server answers
        $this->loss = $this->loss() ?? $this->why('it was released', 'released');
        $keep = max($keep, $this->keepUntil - Clock::now());
        $timeout = min($this->servers->timeout, self::RELEASE_TIMEOUT);
        $answer = $this->servers->askEach($this->wanted->release($this->token, $timeout, $keep));
        if ($answer->isFinal()) {
            return Words::error($answer, $this->wanted->text);
        }
        return $answer->status === 204 ? true : null;
    }

    /** Looks at the clock itself. */
    private function loss(): ?array
    {
        if (!$this->isMine()) {
            return $this->why('it is held by the process that took it, and not by a forked child', 'forked');
        }
        if ($this->loss === null && $this->stop !== null && $this->stop <= Clock::now()) {
            $this->loss = $this->tooLate();
        }
        return $this->loss;
    }

    private function tooLate(): array
    {
        if ($this->bounded) {
            return $this->why('the server does not extend it any further (--max-hold-ms)', 'max-hold');
        }
        if ($this->failure !== null) {
            $why = 'it could not be refreshed in time: ' . $this->failure->getMessage();
            return $this->why($why, $this->failure->errorCode(), $this->failure);
        }
        return $this->why('it was not refreshed in time', 'late');
    }

    private function why(string $why, string $cause, ?RedlockdException $error = null): array
    {
        return ["lease on {$this->wanted->text} lost: $why", $cause, $error];
    }
}
