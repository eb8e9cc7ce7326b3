<?php
// SPDX-License-Identifier: MIT

namespace Redlockd;

/** What counts as the answer to a request. @internal */
final class Answer
{
    /** 0 where no whole answer of redlockd came; `$why` says what came instead. */
    public int $status = 0;
    public string $why = '';
    /** The request may have been carried out. */
    public bool $sent = true;
    public \stdClass $body;
    /** @var array<string, string> */
    public array $headers = [];

    public static function none(string $why, bool $sent): self
    {
        $answer = new self();
        [$answer->why, $answer->sent, $answer->body] = [$why, $sent, new \stdClass()];
        return $answer;
    }

    /** @param array<string, string> $headers */
    public static function of(int $status, \stdClass $body, array $headers): self
    {
        $answer = new self();
        [$answer->status, $answer->body, $answer->headers] = [$status, $body, $headers];
        return $answer;
    }

    public function code(): string
    {
        $code = $this->body->code ?? null;
        return is_string($code) ? $code : '';
    }

    /** The lease is over, whatever another server says. */
    public function isFinal(): bool
    {
        return $this->status === 409 && $this->code() === 'not-owner'
            || $this->status === 410 && $this->code() === 'lease-expired';
    }

    /** Seconds; one where the answer names none. */
    public function retryAfter(): float
    {
        $value = $this->headers['retry-after'] ?? '';
        return preg_match('/\A\d{1,5}\z/', $value) ? (float) $value : 1.0;
    }
}
