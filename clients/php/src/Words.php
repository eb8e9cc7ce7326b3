<?php
// SPDX-License-Identifier: MIT

namespace Redlockd;

/** Texts for people: the names of locks, and what a server says in the words and units of this library. @internal */
final class Words
{
    private const CLASSES = [
        'invalid-request' => InvalidRequest::class, 'unauthorized' => Unauthorized::class,
        'forbidden' => Forbidden::class, 'not-found' => NotFound::class,
        'method-not-allowed' => MethodNotAllowed::class, 'locked' => Locked::class, 'not-owner' => NotOwner::class,
        'lease-expired' => LeaseExpired::class, 'too-large' => TooLarge::class,
        'too-many-requests' => TooManyRequests::class, 'no-quorum' => NoQuorum::class,
        'split-vote' => SplitVote::class, 'draining' => Draining::class,
    ];

    /** @param string[] $names */
    public static function names(array $names): string
    {
        return implode(', ', array_map([self::class, 'printable'], $names));
    }

    /** The error of an answer. `$names`: of the lock that it is about; `$ttlName`: the option that has the ttl. */
    public static function error(Answer $answer, string $names, string $ttlName = 'ttl'): RedlockdException
    {
        if ($answer->status === 0) {
            return new NoAnswer("no answer of redlockd: $answer->why");
        }
        $problem = (array) json_decode((string) json_encode($answer->body), true);
        $kind = self::CLASSES[$answer->code()] ?? RedlockdException::class;
        $detail = $kind === Locked::class
            ? self::heldBy($problem, $names) : self::detail($problem, $answer->status, $ttlName);
        return new $kind($detail, $answer->status, $problem);
    }

    /** An owner or a name may have any characters. */
    private static function printable(string $text): string
    {
        return preg_match('/\A[^\p{C}\p{Zl}\p{Zp}]*\z/u', $text) ? $text : (string) json_encode($text);
    }

    private static function seconds(int $milliseconds): string
    {
        return rtrim(rtrim(number_format($milliseconds / 1000, 3, '.', ''), '0'), '.') . ' s';
    }

    /** Its `detail` with the names of the options, and seconds. */
    private static function detail(array $problem, int $status, string $ttlName): string
    {
        $detail = is_string($problem['detail'] ?? null) ? $problem['detail'] : "status $status";
        $errors = is_array($problem['errors'] ?? null) ? array_filter($problem['errors'], 'is_array') : [];
        $detail = $errors ? implode('; ', array_map([self::class, 'wrongField'], $errors)) : $detail;
        return (string) preg_replace(['/\bttl_ms\b/', '/\bwait_ms\b/'], [$ttlName, 'wait'], $detail);
    }

    private static function wrongField(array $error): string
    {
        $field = is_string($error['field'] ?? null) ? $error['field'] : '?';
        $reason = is_string($error['reason'] ?? null) ? $error['reason'] : '?';
        if (preg_match('/\A(ttl|wait)_ms\z/', $field)) { // its numbers are milliseconds
            $reason = (string) preg_replace_callback('/(?<!\d)\d{1,15}(?!\d)/', static function (array $found): string {
                return self::seconds((int) $found[0]);
            }, $reason);
        }
        return "$field: $reason";
    }

    /** The lock and its holder, of a 409 `locked`. */
    private static function heldBy(array $problem, string $names): string
    {
        $holder = is_array($problem['holder'] ?? null) ? $problem['holder'] : [];
        $resource = $problem['resource'] ?? null;
        $left = $problem['retry_after_ms'] ?? null;
        $owner = $holder['owner'] ?? null;
        $fence = $holder['fence'] ?? null;
        return (is_string($resource) ? self::printable($resource) : $names) . ': held by '
            . (is_string($owner) && $owner !== '' ? self::printable($owner) : 'somebody else')
            . (is_int($fence) ? " (fence $fence)" : '')
            . (is_int($left) && $left > 0 && $left < 1e15
                ? ', lease ends in ' . self::seconds($left) . ' unless it is extended' : '');
    }
}
