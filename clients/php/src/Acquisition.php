<?php
// SPDX-License-Identifier: MIT

namespace Redlockd;

/**
 * One acquisition: all of its requests have one Idempotency-Key, so that each finds the lease whose answer was lost.
 *
 * @internal
 */
final class Acquisition
{
    private const WAIT_MAX = 60.0; // seconds of one request: the default of --max-wait-ms
    private const APART = 0.5; // seconds from one request to the next that asks the same

    private Servers $servers;
    private Wanted $wanted;
    private string $key;
    private float $begun;
    private float $until;
    private int $failures = 0;
    private float $failingSince = INF;
    /** There may be a lease of which nobody knows. */
    private bool $unknown = false;

    public function __construct(Servers $servers, Wanted $wanted)
    {
        [$this->servers, $this->wanted, $this->begun] = [$servers, $wanted, Clock::now()];
        $this->until = $this->begun + $wanted->wait;
        $this->key = bin2hex(random_bytes(16));
    }

    /** @throws RedlockdException */
    public function run(): Lease
    {
        AtEnd::add($this, function (): void {
            $this->takeBack();
        }, static function (): bool {
            return false;
        });
        try {
            return $this->steps();
        } catch (\Throwable $error) { // also of the handler of a signal
            $this->takeBack();
            throw $error;
        } finally {
            AtEnd::remove($this);
        }
    }

    private function ask(float $wait, float $timeout): Ask
    {
        $body = $this->wanted->body + ['wait_ms' => (int) (1000 * $wait)];
        $ask = new Ask('POST', '/locks', $timeout, $body, ['Idempotency-Key' => $this->key]);
        $ask->waits = $wait > 0;
        $ask->wrong = function (\stdClass $lease): string {
            return $this->wanted->wrong($lease, $this->wanted->body['ttl_ms'] ?? null, null, $this->begun);
        };
        return $ask;
    }

    private function steps(): Lease
    {
        while (true) {
            $sent = Clock::now(); // before the request: the lease lasts for so long from here, or longer
            $wait = min(max($this->until - $sent, 0.0), self::WAIT_MAX);
            [$known, $this->unknown] = [!$this->unknown, true];
            $answer = $this->servers->ask($this->ask($wait, $wait + $this->servers->timeout));
            if (in_array($answer->status, [200, 201], true)) {
                $lease = Lease::granted($this->servers, $this->wanted, $answer->body, $sent);
                if ($lease->remaining() > 0) {
                    return $lease;
                }
                $this->servers->ask($this->wanted->release($lease->token(), $this->servers->timeout));
                [$this->key, $this->unknown] = [bin2hex(random_bytes(16)), false];
                $answer = Answer::none('the lease came too late to be used', false);
            } elseif ($answer->status === 409
                || $known && (!in_array($answer->status, [0, 503], true) || !$answer->sent)) {
                $this->unknown = false;
            }
            $pause = $this->pause($answer, $sent, $wait);
            if ($pause === null) {
                throw Words::error($answer, $this->wanted->text, $this->wanted->ttlName);
            }
            Clock::pause($pause);
        }
    }

    /** Seconds before the next request; null: give up. */
    private function pause(Answer $answer, float $sent, float $wait): ?float
    {
        $now = Clock::now();
        $left = $this->until - $now;
        $locked = $answer->status === 409 && $answer->code() === 'locked';
        $this->failures = $locked ? 0 : $this->failures + 1;
        $this->failingSince = $locked ? INF : min($this->failingSince, $now);
        if ($locked ? $left <= 0 : !in_array($answer->status, [0, 429, 503], true)) {
            return null;
        }
        if ($left === INF && $now >= $this->failingSince + self::WAIT_MAX) {
            return null; // a wait without an end is for a lock that is held
        }
        if ($left <= 0) { // each server once, and once more where the answer was lost
            $lost = $answer->status === 0 && $answer->sent;
            return $this->failures < $this->servers->count + (int) $lost ? 0.0 : null;
        }
        $kept = is_int($answer->body->place_kept_ms ?? null);
        $random = random_int(0, 1000000) / 1e6;
        if ($locked) {
            $goesOn = $kept || $now - $sent >= $wait - 0.5;
            $pause = $goesOn ? 0.0 : min($answer->retryAfter(), 1.0) + $random;
            return min($left, max($pause, $sent + self::APART - $now));
        }
        if ($this->failures % $this->servers->count !== 0) { // another server
            return 0.0;
        }
        // With a place in the queue not for as long as the server asks for: the place would be gone.
        return min($left, ($kept ? 0.0 : $answer->retryAfter()) + $random);
    }

    /** Nobody wants the lock any more: finds and releases the lease that may have been granted. */
    private function takeBack(): void
    {
        if (!$this->unknown) {
            return;
        }
        $limit = min($this->servers->timeout, 1.0);
        $answer = $this->servers->askEach($this->ask(0.0, $limit));
        if (in_array($answer->status, [200, 201], true)) {
            $this->servers->ask($this->wanted->release($answer->body->token, $limit));
        }
    }
}
