<?php
// SPDX-License-Identifier: MIT

namespace Redlockd;

/** A request to whichever server is in use. @internal */
final class Ask
{
    private const SUCCESS = ['POST' => [200, 201], 'PUT' => [200], 'DELETE' => [204], 'GET' => [200]];

    public string $method;
    public string $path;
    /** Seconds for all of it. */
    public float $timeout;
    public ?array $body;
    /** @var array<string, string> */
    public array $headers;
    /** The server may wait before it answers. */
    public bool $waits = false;
    /** It must not be sent twice, and has a connection of its own. */
    public bool $once = false;
    /** @var ?callable(\stdClass): string The member of a successful answer that does not fit, or an empty text. */
    public $wrong = null;

    public function __construct(string $method, string $path, float $timeout, ?array $body = null, array $headers = [])
    {
        [$this->method, $this->path, $this->timeout] = [$method, $path, $timeout];
        [$this->body, $this->headers] = [$body, $headers];
    }

    /** An answer that does not fit the request is none. `$where`: the address of the server. */
    public function read(string $where, int $status, array $headers, string $content): Answer
    {
        $body = $content === '' ? new \stdClass() : json_decode($content);
        if (!$body instanceof \stdClass) {
            return Answer::none("$where: status $status without a JSON object", true);
        }
        if ($this->succeeds($status)) {
            $member = $this->wrong ? ($this->wrong)($body) : '';
            return $member === '' ? Answer::of($status, $body, $headers)
                : Answer::none("$where: $member does not fit the request", true);
        }
        if ($status >= 400 && is_string($body->code ?? null)) {
            return Answer::of($status, $body, $headers);
        }
        return Answer::none("$where: status $status does not fit the request", true);
    }

    /** Whether another server is to be asked. */
    public function failed(Answer $answer): bool
    {
        if ($this->once && $answer->sent) {
            return false;
        }
        if (isset($this->headers['Lock-Token'])) {
            return !$this->succeeds($answer->status) && !$answer->isFinal();
        }
        return in_array($answer->status, [0, 429, 503], true);
    }

    private function succeeds(int $status): bool
    {
        return in_array($status, self::SUCCESS[$this->method], true);
    }
}
