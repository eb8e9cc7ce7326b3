<?php
// SPDX-License-Identifier: MIT

namespace Redlockd;

/** The servers of one cluster. One is in use until it fails, and then the next one. @internal */
final class Servers
{
    public const VERSION = '0.1.0';
    public const TOKEN = '/\A[!-~]+\z/';
    private const OWN = [ // headers that the program cannot set
        'accept', 'authorization', 'connection', 'content-length', 'content-type', 'expect', 'host', 'idempotency-key',
        'if-none-match', 'lock-token', 'te', 'trailer', 'transfer-encoding', 'upgrade', 'user-agent', 'x-api-key',
    ];

    public float $timeout;
    public int $count;
    /** @var Server[] */
    private array $servers;
    private int $inUse = 0;
    private ?string $key;
    private ?string $tokenFile;
    /** @var array<string, string>|callable(): array<string, string> */
    private $more;

    /** @param string[] $urls */
    public function __construct(array $urls, array $options)
    {
        $this->timeout = $options['timeout'];
        $this->key = $options['key'];
        $this->tokenFile = $options['token_file'];
        $this->more = $options['headers'] ?? [];
        if ($this->tokenFile !== null && !$this->readToken()) {
            throw new \InvalidArgumentException("token_file: no token in $this->tokenFile");
        }
        $curl = self::curlOptions($options);
        $this->servers = array_map(static function (string $url) use ($curl): Server {
            return new Server($url, $curl);
        }, array_values($urls));
        $this->count = count($this->servers);
    }

    /** The answer of the server in use. */
    public function ask(Ask $ask): Answer
    {
        $probing = $ask->waits && $this->count > 1 ? $this->timeout : null;
        $answer = $this->servers[$this->inUse]->exchange($ask, $this->headers($ask), $this->timeout, $probing);
        if ($ask->failed($answer)) {
            $this->inUse = ($this->inUse + 1) % $this->count;
        }
        return $answer;
    }

    /** Asks each once, until one decides. */
    public function askEach(Ask $ask): Answer
    {
        for ($turn = 1;; ++$turn) {
            $answer = $this->ask($ask);
            if ($turn === $this->count || !$ask->failed($answer)) {
                return $answer;
            }
        }
    }

    private static function curlOptions(array $options): array
    {
        $curl = [
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            CURLOPT_PROXY => '', // also none of the environment
            CURLOPT_NOSIGNAL => true,
            CURLOPT_PATH_AS_IS => true,
            CURLOPT_USERAGENT => 'redlockd-php/' . self::VERSION,
        ];
        if ($options['ca'] !== null) {
            $curl[CURLOPT_CAINFO] = $options['ca'];
            $curl[CURLOPT_CAPATH] = '/dev/null'; // instead of the folder of the system
        }
        if ($options['certificate'] !== null) {
            [$curl[CURLOPT_SSLCERT], $curl[CURLOPT_SSLKEY]] = $options['certificate'];
        }
        return $curl;
    }

    /** The token in the file, as of now: others replace it there. If it cannot be read, the last one counts. */
    private function readToken(): bool
    {
        $token = trim((string) @file_get_contents((string) $this->tokenFile, false, null, 0, 16 << 10));
        $found = preg_match(self::TOKEN, $token) === 1;
        $this->key = $found ? $token : $this->key;
        return $found;
    }

    /** @return string[] */
    private function headers(Ask $ask): array
    {
        if ($this->tokenFile !== null) {
            $this->readToken();
        }
        $headers = $this->more() + $ask->headers + ['Accept' => 'application/json', 'Expect' => ''];
        $headers += $ask->body === null ? [] : ['Content-Type' => 'application/json'];
        $headers += $this->key === null ? [] : ['Authorization' => "Bearer $this->key"];
        return array_map(static function (string $name, string $value): string {
            return $value === '' ? "$name:" : "$name: $value";
        }, array_keys($headers), $headers);
    }

    /** Headers of the program that may be sent. An error of its function must not cost a lease. */
    private function more(): array
    {
        try {
            $found = is_callable($this->more) ? ($this->more)() : $this->more;
            $headers = [];
            foreach (is_array($found) ? $found : [] as $name => $value) {
                if (is_string($name) && is_string($value) && !in_array(strtolower($name), self::OWN, true)
                    && preg_match("/\A[\w!#$%&'*+.^`|~-]+\z/", $name) && preg_match('/\A[\t -~]*\z/', $value)) {
                    $headers[$name] = $value;
                }
            }
            return $headers;
        } catch (\Throwable $error) {
            return [];
        }
    }
}
