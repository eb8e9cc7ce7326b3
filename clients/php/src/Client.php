<?php
// SPDX-License-Identifier: MIT

namespace Redlockd;

/** A client of one cluster of redlockd. */
final class Client
{
    private const OPTIONS = [
        'key' => null, 'token_file' => null, 'ca' => null, 'certificate' => null, 'owner' => null, 'headers' => null,
        'timeout' => 5.0,
    ];

    private Servers $servers;
    private ?string $owner;

    /**
     * @param string|string[] $servers `https://host:port`, `http://host:port` or `unix:/path`, the preferred one first
     * @param array           $options `key`: an API key. `token_file`: a file with a token instead, which is read for
     *                                 each request. `ca`: a file with the authorities to trust for HTTPS.
     *                                 `certificate`: the files of a client certificate and of its key. `owner`: for all
     *                                 locks that name none. `headers`: more headers for each request, or a function
     *                                 that returns them. `timeout`: seconds that a server may take to answer, beside
     *                                 what the request waits for
     */
    public function __construct($servers = 'http://127.0.0.1:8080', array $options = [])
    {
        $options = Wanted::options($options, self::OPTIONS);
        $urls = is_string($servers) ? [$servers] : $servers;
        if (!$urls) {
            throw new \InvalidArgumentException('servers: no server is given');
        }
        if ($options['key'] !== null && !preg_match(Servers::TOKEN, $options['key'])) {
            throw new \InvalidArgumentException('key: it has characters that no key has');
        }
        if ($options['key'] !== null && $options['token_file'] !== null) {
            throw new \InvalidArgumentException('key and token_file: one of them only');
        }
        if (!($options['timeout'] > 0)) {
            throw new \InvalidArgumentException("timeout must be a positive number of seconds: {$options['timeout']}");
        }
        $certificate = $options['certificate'];
        if ($certificate !== null && (!is_array($certificate) || array_keys($certificate) !== [0, 1])) {
            throw new \InvalidArgumentException('certificate: two files, of the certificate and of its key');
        }
        foreach (['ca' => [$options['ca']], 'certificate' => $certificate ?? []] as $option => $files) {
            foreach ($files as $file) {
                if ($file !== null && !is_readable($file)) {
                    throw new \InvalidArgumentException("$option: the file $file cannot be read");
                }
            }
        }
        $this->owner = $options['owner'];
        $this->servers = new Servers($urls, $options);
    }

    /**
     * A lock on one resource, or on all of several at once.
     *
     * @param string|string[] $resource
     * @param array           $options  times are seconds. `ttl`: how long the lease lasts without a refresh (as the
     *                                  server says: 30). `wait`: how long to wait for the lock (60); INF: as long as it
     *                                  is held, and a minute for servers that fail. `margin`: how long before its end
     *                                  the lease counts as lost (a tenth of `ttl`). `at_least`: nobody else gets the
     *                                  lock earlier after it was granted; from 10 on it is the `ttl`, too, if none is
     *                                  given. `mode`: `shared`. `slots`: one of so many that may have the lock at once.
     *                                  `owner`, `metadata`: for those who look at the lock
     * @throws Locked            if somebody else has the lock until the wait is over
     * @throws RedlockdException
     */
    public function acquire($resource, array $options = []): Lease
    {
        return (new Acquisition($this->servers, new Wanted($resource, $options, $this->owner)))->run();
    }

    /**
     * The same without waiting. Null: somebody else has the lock.
     *
     * @param string|string[] $resource
     * @throws RedlockdException
     */
    public function tryAcquire($resource, array $options = []): ?Lease
    {
        try {
            return $this->acquire($resource, ['wait' => 0.0] + $options);
        } catch (Locked $error) {
            return null;
        }
    }

    /**
     * Calls `$work` with a lease, and releases it at the end. Returns what `$work` returns.
     *
     * @param string|string[]       $resource
     * @param callable(Lease): mixed $work
     * @return mixed
     * @throws LockLost          if `$work` ended well and the lease was lost meanwhile
     * @throws RedlockdException
     */
    public function using($resource, callable $work, array $options = [])
    {
        $lease = $this->acquire($resource, $options);
        try {
            $result = $work($lease);
        } catch (\Throwable $error) {
            $lease->release();
            throw $error;
        }
        $lease->leave();
        return $result;
    }

    /**
     * Goes on with a lease that another process took and detached. It is refreshed at once, to `ttl` seconds from now
     * (as the server says: 30).
     *
     * @param string|string[] $resource
     * @throws LockLost          if the lease is over
     * @throws RedlockdException if no server extended it
     */
    public function resume($resource, string $token, ?float $ttl = null): Lease
    {
        if (!preg_match('/\A[0-9a-f]{40}\z/', $token)) {
            throw new \InvalidArgumentException('token: 40 digits of 0-9a-f');
        }
        return Lease::resumed($this->servers, new Wanted($resource, ['ttl' => $ttl], null), $token);
    }

    /**
     * Who holds the lock, as GET /locks?resource= says.
     *
     * @throws RedlockdException
     */
    public function state(string $resource): array
    {
        $wanted = new Wanted($resource, [], null);
        $query = http_build_query(['resource' => $resource, 'wait_ms' => 0]);
        $ask = new Ask('GET', "/locks?$query", $this->servers->timeout);
        $ask->wrong = static function (\stdClass $state) use ($resource): string {
            $isWrong = ($state->resource ?? null) !== $resource;
            return $isWrong ? 'resource' : (is_bool($state->held ?? null) ? '' : 'held');
        };
        $answer = $this->servers->askEach($ask);
        if ($answer->status !== 200) {
            throw Words::error($answer, $wanted->text);
        }
        return (array) json_decode((string) json_encode($answer->body), true);
    }

    /**
     * For operators: takes the lock from its holder; with `$fence`, only from that one. Without a fence it is sent
     * once: a second one could release the next holder.
     *
     * @throws RedlockdException
     */
    public function force(string $resource, ?int $fence = null): void
    {
        $wanted = new Wanted($resource, [], null);
        $path = '/locks?force=true' . ($fence === null ? '' : "&fence=$fence");
        $ask = new Ask('DELETE', $path, $this->servers->timeout, $wanted->names);
        $ask->once = $fence === null;
        $answer = $this->servers->askEach($ask);
        if ($answer->status !== 204) {
            throw Words::error($answer, $wanted->text);
        }
    }

    public function __debugInfo(): array
    {
        return []; // nothing that has a key
    }
}
