<?php
// SPDX-License-Identifier: MIT
// The failures, as exceptions: one class for each `code` of docs/reference/errors.md, and two of the library's own.

namespace Redlockd;

/** Base of all errors of this library. An error with an unknown code is one of this class itself. */
class RedlockdException extends \RuntimeException
{
    private int $status;
    private array $problem;

    public function __construct(string $detail, int $status = 0, array $problem = [], ?\Throwable $previous = null)
    {
        parent::__construct($detail, 0, $previous);
        $this->status = $status;
        $this->problem = $problem;
    }

    /** The code of the answer, such as `locked`; otherwise that of the class, such as `no-answer`. */
    final public function errorCode(): string
    {
        $name = substr(static::class, strlen(__NAMESPACE__) + 1);
        $own = static::class === self::class ? 'error' : strtolower((string) preg_replace('/\B(?=[A-Z])/', '-', $name));
        $code = $this->problem['code'] ?? null;
        return is_string($code) ? $code : $own;
    }

    /** The status of the answer; 0 without one. */
    final public function status(): int
    {
        return $this->status;
    }

    /** The whole answer. */
    final public function problem(): array
    {
        return $this->problem;
    }
}

/** No server of redlockd answered. After an acquisition, a lease may have been granted that ends by itself. */
final class NoAnswer extends RedlockdException {}

/** The lease cannot be relied on any more: stop the work. */
final class LockLost extends RedlockdException
{
    private string $cause;

    public function __construct(string $detail, string $cause, ?\Throwable $previous = null)
    {
        parent::__construct($detail, 0, [], $previous);
        $this->cause = $cause;
    }

    /** A word that says why: docs/how-to/clients.md has the list. */
    public function cause(): string
    {
        return $this->cause;
    }
}

/** Somebody else has the lock, and the wait is over. The message names the lock and its holder. */
final class Locked extends RedlockdException {}

/** The request is wrong: `problem()['errors']` has each field and the reason. */
final class InvalidRequest extends RedlockdException {}

/** No key or certificate, or one that is not known. */
final class Unauthorized extends RedlockdException {}

/** The caller may not do this, or not with this resource. */
final class Forbidden extends RedlockdException {}

/** No such path: is the address of the server right? */
final class NotFound extends RedlockdException {}

/** The path does not take this method. */
final class MethodNotAllowed extends RedlockdException {}

/** Another holder has the lock. */
final class NotOwner extends RedlockdException {}

/** Nobody holds the lock with this token any more. */
final class LeaseExpired extends RedlockdException {}

/** Body, address or headers are too long. */
final class TooLarge extends RedlockdException {}

/** A rate limit, or too many connections or waiting requests. */
final class TooManyRequests extends RedlockdException {}

/** Too few masters answered. */
final class NoQuorum extends RedlockdException {}

/** Several asked at once, and none got a majority. */
final class SplitVote extends RedlockdException {}

/** The server shuts down. */
final class Draining extends RedlockdException {}
