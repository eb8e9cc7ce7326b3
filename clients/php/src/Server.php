<?php
// SPDX-License-Identifier: MIT

namespace Redlockd;

/**
 * One server of the list, and the connection to it, which is kept between requests in a handle of curl_multi. curl
 * repeats a request on a new connection where a kept one turns out to be closed. The handler of a signal may send
 * another request while one is under way: it has a connection of its own. @internal
 */
final class Server
{
    private const NOT_SENT = [
        CURLE_URL_MALFORMAT, CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT, CURLE_SSL_CONNECT_ERROR,
        CURLE_SSL_CERTPROBLEM, CURLE_SSL_CIPHER, CURLE_SSL_CACERT, CURLE_SSL_CACERT_BADFILE,
    ];

    public string $url;
    private string $base;
    /** Of curl, for all requests. */
    private array $options;
    /** @var \CurlMultiHandle|resource|null The idle connection. */
    private $idle = null;
    private float $idleUntil = 0.0;
    private int $process = 0;

    public function __construct(string $url, array $options)
    {
        $socket = strncmp($url, 'unix:', 5) === 0 ? substr($url, 5) : '';
        $parts = $socket === '' ? (parse_url($url) ?: []) : ['scheme' => 'http', 'host' => 'localhost'];
        $usable = in_array($parts['scheme'] ?? '', ['http', 'https'], true) && ($parts['host'] ?? '') !== '';
        if (!$usable || array_intersect_key($parts, ['user' => 1, 'pass' => 1, 'query' => 1, 'fragment' => 1])
            || !preg_match('/\A[!-~]+\z/', $url)) {
            throw new \InvalidArgumentException('servers: not the address of a server: ' . json_encode($url)
                . ': use http://host:port, https://host:port or unix:/path');
        }
        $this->url = $url;
        $this->base = $socket === '' ? rtrim($url, '/') : 'http://localhost';
        $this->options = $options + ($socket === '' ? [] : [CURLOPT_UNIX_SOCKET_PATH => $socket]);
    }

    /**
     * Sends the request and reads its answer. `$connect`: seconds that a connection may take; `$probing`: seconds
     * between health checks while the request waits, which is given up where they have no answer. If the handler of a
     * signal throws, the connection is closed.
     *
     * @param string[] $headers
     */
    public function exchange(Ask $ask, array $headers, float $connect, ?float $probing): Answer
    {
        $multi = $ask->once ? null : $this->takeIdle();
        $isNew = $multi === null;
        $multi = $multi ?? curl_multi_init();
        $reply = new Reply();
        $request = $this->begin($ask, $headers, $connect, $reply);
        curl_multi_add_handle($multi, $request);
        $probe = null;
        $until = Clock::now() + $ask->timeout;
        $nextProbe = $probing === null ? INF : Clock::now() + $probing;
        $keepsFor = 0.0;
        try {
            while (true) {
                do {
                    $state = curl_multi_exec($multi, $running);
                } while ($state === CURLM_CALL_MULTI_PERFORM);
                while ($done = curl_multi_info_read($multi)) {
                    if ($done['handle'] === $request) {
                        $keepsFor = $done['result'] === CURLE_OK ? $reply->keepsFor() : 0.0;
                        return $this->end($ask, $done['result'], $request, $reply, $isNew);
                    }
                    curl_multi_remove_handle($multi, $probe);
                    $probe = null;
                    if ($done['result'] !== CURLE_OK) {
                        return Answer::none("$this->url: it does not answer health checks", true);
                    }
                    $nextProbe = Clock::now() + (float) $probing;
                }
                $now = Clock::now();
                if ($now >= $until) {
                    $sent = !$isNew || curl_getinfo($request, CURLINFO_PRETRANSFER_TIME) > 0;
                    $why = $sent ? 'it does not answer in time' : 'no connection in time';
                    return Answer::none("$this->url: $why", $sent);
                }
                if ($now >= $nextProbe) {
                    $probe = $this->probe((float) $probing);
                    $nextProbe = INF; // until it is answered
                    curl_multi_add_handle($multi, $probe);
                    continue;
                }
                if (curl_multi_select($multi, max(0.0, min($until - $now, $nextProbe - $now, 1.0))) < 1) {
                    usleep(200); // it returns at once while there is no socket yet
                }
            }
        } finally {
            curl_multi_remove_handle($multi, $request); // closes the connection unless the answer is whole
            if ($probe !== null) {
                curl_multi_remove_handle($multi, $probe);
            }
            if (!$ask->once && $keepsFor > 0) {
                [$this->idle, $this->idleUntil] = [$multi, Clock::now() + $keepsFor];
            }
        }
    }

    /**
     * Null where a new one is needed. A forked child takes none of its parent.
     *
     * @return \CurlMultiHandle|resource|null
     */
    private function takeIdle()
    {
        $isUsable = Clock::now() < $this->idleUntil && $this->process === getmypid();
        [$multi, $this->idle, $this->process] = [$isUsable ? $this->idle : null, null, (int) getmypid()];
        return $multi;
    }

    /** @return \CurlHandle|resource */
    private function begin(Ask $ask, array $headers, float $connect, Reply $reply)
    {
        $handle = curl_init();
        curl_setopt_array($handle, $this->options + [
            CURLOPT_URL => $this->base . $ask->path,
            CURLOPT_CUSTOMREQUEST => $ask->method,
            CURLOPT_HTTPHEADER => $headers,
            CURLOPT_CONNECTTIMEOUT_MS => (int) ceil(1000 * min($ask->timeout, $connect)),
            CURLOPT_HEADERFUNCTION => static function ($_, string $line) use ($reply): int {
                return $reply->readHead($line);
            },
            CURLOPT_WRITEFUNCTION => static function ($_, string $part) use ($reply): int {
                return $reply->readBody($part);
            },
        ]);
        if ($ask->body !== null) {
            $body = json_encode($ask->body, JSON_UNESCAPED_SLASHES | JSON_THROW_ON_ERROR);
            curl_setopt($handle, CURLOPT_POSTFIELDS, $body);
        }
        return $handle;
    }

    /** @return \CurlHandle|resource */
    private function probe(float $timeout)
    {
        $handle = curl_init();
        curl_setopt_array($handle, $this->options + [
            CURLOPT_URL => $this->base . '/healthz',
            CURLOPT_TIMEOUT_MS => (int) ceil(1000 * $timeout),
            CURLOPT_FRESH_CONNECT => true,
            CURLOPT_FORBID_REUSE => true,
            CURLOPT_WRITEFUNCTION => static function ($_, string $part): int {
                return strlen($part);
            },
        ]);
        return $handle;
    }

    /** @param \CurlHandle|resource $request */
    private function end(Ask $ask, int $result, $request, Reply $reply, bool $isNew): Answer
    {
        if ($result === CURLE_OK) {
            return $ask->read($this->url, $reply->status, $reply->fields, $reply->content);
        }
        $noConnection = in_array($result, self::NOT_SENT, true)
            || $result === CURLE_OPERATION_TIMEDOUT && curl_getinfo($request, CURLINFO_PRETRANSFER_TIME) == 0;
        $why = $reply->why ?: curl_error($request) ?: curl_strerror($result);
        return Answer::none("$this->url: $why", !$isNew || !$noConnection);
    }
}
