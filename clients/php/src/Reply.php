<?php
// SPDX-License-Identifier: MIT

namespace Redlockd;

/** The bytes of an answer as curl hands them over. @internal */
final class Reply
{
    private const HEAD_MAX = 16 << 10;
    private const BODY_MAX = 1 << 20;
    private const IDLE = 5.0; // seconds, where the server does not say how long it keeps a connection

    public int $status = 0;
    /** @var array<string, string> */
    public array $fields = [];
    public string $content = '';
    /** The reason to give it up. */
    public string $why = '';
    private int $headSize = 0;

    /** A line of the head. The head of an interim answer is forgotten at the next status line. */
    public function readHead(string $line): int
    {
        if (preg_match('/\AHTTP\/\S+ (\d{3})/', $line, $found)) {
            [$this->status, $this->fields, $this->headSize] = [(int) $found[1], [], 0];
        } elseif (preg_match('/\A([^:\s]+):[ \t]*(.*?)\s*\z/s', $line, $found)) {
            $this->fields[strtolower($found[1])] = $found[2];
        }
        $this->headSize += strlen($line);
        $this->why = $this->headSize > self::HEAD_MAX ? 'the head is too long' : $this->why;
        return $this->why === '' ? strlen($line) : -1;
    }

    public function readBody(string $part): int
    {
        $this->content .= $part;
        $this->why = strlen($this->content) > self::BODY_MAX ? 'the body is too long' : $this->why;
        return $this->why === '' ? strlen($part) : -1;
    }

    /** Seconds for which the connection can be used again: until a second before the server closes it. */
    public function keepsFor(): float
    {
        if (preg_match('/\bclose\b/i', $this->fields['connection'] ?? '')) {
            return 0.0;
        }
        $said = preg_match('/timeout=(\d{1,6})/', $this->fields['keep-alive'] ?? '', $found);
        return $said ? (float) $found[1] - 1 : self::IDLE;
    }
}
