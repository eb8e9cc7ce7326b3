<?php
// SPDX-License-Identifier: MIT

namespace Redlockd;

/** The lease that is asked for: one resource, or all of several at once. @internal */
final class Wanted
{
    public const LARGEST = 2 ** 53 - 1; // that each JSON parser keeps
    private const AT_LEAST_OF_LEASE = 10.0; // seconds; a shorter lease is not worth its renewals
    private const OPTIONS = [
        'ttl' => null, 'wait' => 60.0, 'margin' => null, 'at_least' => 0.0, 'owner' => null, 'metadata' => null,
        'mode' => null, 'slots' => null,
    ];

    public float $wait;
    public float $atLeast;
    public ?int $slots;
    /** What names the lock in a request. */
    public array $names;
    /** The same for people. */
    public string $text;
    /** Of the first request. */
    public array $body;
    /** The option that has the ttl. */
    public string $ttlName = 'ttl';
    private ?float $margin;
    /** @var string[] */
    private array $resources;

    /** @param string|string[] $names */
    public function __construct($names, array $options, ?string $owner)
    {
        $isGiven = static function ($value): bool {
            return $value !== null;
        };
        $options = self::options($options, self::OPTIONS);
        $given = array_filter($options, $isGiven) + ['owner' => $owner] + self::OPTIONS;
        [$ttl, $this->wait, $this->margin] = [$given['ttl'], $given['wait'], $given['margin']];
        [$this->atLeast, $this->slots] = [$given['at_least'], $given['slots']];
        if ($ttl === null && $this->atLeast >= self::AT_LEAST_OF_LEASE) {
            [$ttl, $this->ttlName] = [$this->atLeast, 'at_least'];
        }
        self::require($ttl === null || $ttl > 0 && $ttl <= self::LARGEST / 1000,
            'ttl must be a positive number of seconds', $ttl);
        self::require($this->wait >= 0, 'wait must be a number of seconds that is not negative', $this->wait);
        self::require($this->margin === null || $this->margin >= 0 && ($ttl === null || $this->margin <= $ttl / 2),
            'margin must be a number of seconds from 0 to half of ttl', $this->margin);
        self::require($this->atLeast >= 0 && ($ttl === null || $this->atLeast <= $ttl),
            'at_least must be a number of seconds from 0 to ttl', $this->atLeast);
        $this->resources = is_array($names) ? array_values($names) : [$names];
        foreach ($this->resources as $name) {
            if (!is_string($name) || !preg_match('//u', $name)) {
                throw new \InvalidArgumentException('the name of a lock must be a text in UTF-8');
            }
        }
        $this->text = Words::names($this->resources);
        $this->names = is_string($names) ? ['resource' => $names] : ['resources' => $this->resources];
        $metadata = $given['metadata'];
        $this->body = $this->names + array_filter([
            'ttl_ms' => $ttl === null ? null : (int) round(1000 * $ttl), 'owner' => $given['owner'],
            'metadata' => is_array($metadata) ? (object) $metadata : $metadata, 'mode' => $given['mode'],
            'slots' => $this->slots,
        ], $isGiven);
        foreach ($this->body as $member => $value) {
            if (json_encode($value) === false) {
                throw new \InvalidArgumentException("$member: " . json_last_error_msg());
            }
        }
    }

    /** Those that are given, and the others as they are. */
    public static function options(array $given, array $all): array
    {
        foreach (array_diff_key($given, $all) as $option => $_) {
            $known = implode(', ', array_keys($all));
            throw new \InvalidArgumentException("there is no option '$option': the options are $known");
        }
        return $given + $all;
    }

    /** Seconds before the end of a lease from which it counts as lost. */
    public function margin(float $ttl): float
    {
        return $this->margin === null ? $ttl / 10 : min($this->margin, $ttl / 2);
    }

    /** `$keep`: seconds for which nobody gets the lock. */
    public function release(string $token, float $timeout, float $keep = 0.0): Ask
    {
        $body = $this->names + ($keep > 0 ? ['keep_ms' => (int) ceil(1000 * $keep)] : []);
        return new Ask('DELETE', '/locks', $timeout, $body, ['Lock-Token' => $token]);
    }

    /**
     * The member of a lease that does not fit what was asked. `$askedMs`: the ttl, if one was sent; `$token`: that of a
     * renewal; `$since`: when an acquisition began.
     */
    public function wrong(\stdClass $lease, ?int $askedMs, ?string $token, ?float $since): string
    {
        if (isset($this->names['resource'])) {
            if (($lease->resource ?? null) !== $this->names['resource']) {
                return 'resource';
            }
        } elseif (!$this->isSame($lease->resources ?? null)) {
            return 'resources';
        }
        $found = $lease->token ?? null;
        if (!is_string($found) || !preg_match('/\A[0-9a-f]{40}\z/', $found) || $token !== null && $found !== $token) {
            return 'token';
        }
        $most = ['fence' => self::LARGEST, 'ttl_ms' => $askedMs ?? self::LARGEST, 'validity_ms' => $lease->ttl_ms ?? 0];
        foreach ($most as $member => $largest) {
            if (!self::isWithin($lease->$member ?? null, 1, $largest)) {
                return $member;
            }
        }
        if ($since === null) {
            return self::isWithin(self::member($lease, 'waiters'), 0, self::LARGEST) ? '' : 'waiters';
        }
        $waited = self::member($lease, 'waited_ms');
        if (!self::isWithin($waited, 0, self::LARGEST) || 0.99 * $waited > 1000 * (Clock::now() - $since) + 1) {
            return 'waited_ms';
        }
        return $this->slots && !self::isWithin($lease->slot ?? null, 0, $this->slots - 1) ? 'slot' : '';
    }

    /** @return mixed 0 where it is not there */
    private static function member(\stdClass $lease, string $name)
    {
        return property_exists($lease, $name) ? $lease->$name : 0;
    }

    /** Whether it is an integer of JSON in these bounds, and not a boolean or a fraction. */
    private static function isWithin($number, int $least, $largest): bool
    {
        return is_int($number) && $number >= $least && $number <= $largest;
    }

    /** The same names in any order. */
    private function isSame($found): bool
    {
        if (!is_array($found) || array_filter($found, 'is_string') !== $found) {
            return false;
        }
        $mine = $this->resources;
        sort($mine, SORT_STRING);
        sort($found, SORT_STRING);
        return $found === $mine;
    }

    private static function require(bool $fits, string $rule, $value): void
    {
        if (!$fits) {
            throw new \InvalidArgumentException("$rule: $value");
        }
    }
}
