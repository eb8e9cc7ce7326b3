<?php
// SPDX-License-Identifier: MIT
// The driver of the library for PHP: tests/clients/driver.py has its protocol. PHP has no threads, so this is several
// processes: the first one carries out commands, a front passes them on, and starts another worker for a command that
// comes while all others are busy. A command on a lease goes to the worker that took it. The library renews nothing by
// itself: a worker refreshes its leases, each a third of its ttl after the last time. If it is busy, it does so, and
// carries out commands on its leases, in the handler of a signal that the front sends.

require __DIR__ . '/../../../clients/php/src/autoload.php';

use Redlockd\Client;
use Redlockd\Clock;
use Redlockd\LockLost;
use Redlockd\RedlockdException;

const CLIENT = ['key', 'token_file', 'owner', 'timeout', 'ca', 'certificate', 'headers'];
const OPTIONS = ['ttl', 'wait', 'margin', 'at_least', 'owner', 'metadata', 'mode', 'slots'];
const MOST_WORKERS = 24;

final class Raised extends Exception
{
}

final class Interrupted extends Exception
{
}

/** What a command of this library cannot do. */
final class Unsupported extends Exception
{
}

function given(array $command, array $names): array
{
    return array_filter(array_intersect_key($command, array_flip($names)), static function ($value): bool {
        return $value !== null;
    });
}

function error_of(Throwable $error): array
{
    if ($error instanceof RedlockdException) {
        $cause = $error instanceof LockLost ? ['cause' => $error->cause()] : [];
        $detail = $error->getMessage();
        return ['code' => $error->errorCode(), 'detail' => $detail, 'status' => $error->status()] + $cause;
    }
    $codes = [Raised::class => 'raised', Interrupted::class => 'interrupted', Unsupported::class => 'unsupported'];
    return ['code' => $codes[get_class($error)] ?? 'other', 'detail' => $error->getMessage(), 'status' => 0];
}

/** A lease of a program that refreshes it in time. */
final class Held
{
    public \Redlockd\Lease $lease;
    public float $due;
    public int $wanted = 0;

    private float $margin;

    public function __construct(\Redlockd\Lease $lease, ?float $margin)
    {
        [$this->lease, $this->margin] = [$lease, $margin ?? $lease->ttl() / 10];
        $this->due = $this->third();
    }

    public function refresh(): void
    {
        $before = $this->lease->waiters();
        try {
            $this->lease->refresh();
            $this->due = $this->third();
            $this->wanted += $this->lease->waiters() > 0 && $before === 0 ? 1 : 0;
        } catch (LockLost $error) {
            $this->due = INF;
        } catch (RedlockdException $error) {
            $this->due = Clock::now() + $this->lease->ttl() / 10;
        }
    }

    /** When a third of the ttl has passed since the request was sent. */
    private function third(): float
    {
        $passed = $this->lease->ttl() - $this->lease->remaining() - $this->margin;
        return Clock::now() + max($this->lease->ttl() / 3 - $passed, $this->lease->ttl() / 10);
    }
}

final class Worker
{
    /** @var resource */
    private $socket;
    /** @var array<string, Client> */
    private array $clients = [];
    /** @var array<string, Held> */
    private array $held = [];
    /** Commands that wait for the loss of a lease, and until when. */
    private array $waiting = [];
    /** Commands that take long, and have not begun. */
    private array $queue = [];
    private string $input = '';
    private bool $ended = false;
    private bool $isBusy = false;
    private bool $isHandling = false;

    public function __construct($socket)
    {
        $this->socket = $socket;
        stream_set_blocking($socket, false);
        pcntl_signal(SIGUSR1, function (): void {
            if ($this->isBusy && !$this->isHandling) {
                $this->isHandling = true;
                $this->read();
                $this->work();
                $this->isHandling = false;
            }
        });
    }

    /** Until the front has nothing more to do. */
    public function run(): void
    {
        while (!$this->ended || $this->queue) {
            $this->read();
            while ($command = array_shift($this->queue)) {
                $this->isBusy = true;
                $this->answer($command);
                $this->isBusy = false;
            }
            $this->work();
            $next = INF;
            foreach ($this->held as $held) {
                $next = min($next, $held->due);
            }
            foreach ($this->waiting as [$command, $until]) {
                $next = min($next, $until, Clock::now() + $this->held[$command['lease']]->lease->remaining());
            }
            $left = min(max(0.0, $next - Clock::now()), 10.0);
            [$read, $write, $except] = [[$this->socket], [], []];
            if (!$this->queue && !$this->ended) {
                @stream_select($read, $write, $except, 0, (int) (1e6 * $left)); // a signal ends it early
            }
        }
    }

    /** What has come: commands on leases are carried out at once. */
    private function read(): void
    {
        while (($part = (string) fread($this->socket, 65536)) !== '') {
            $this->input .= $part;
        }
        $this->ended = feof($this->socket);
        $lines = explode("\n", $this->input);
        $this->input = array_pop($lines);
        foreach ($lines as $line) {
            $command = json_decode($line, true);
            if (in_array($command['do'], ['check', 'remaining', 'lost', 'waiters', 'release'], true)) {
                $this->answer($command);
            } else {
                $this->queue[] = $command;
            }
        }
    }

    private function say(array $command, array $answer): void
    {
        $line = json_encode(['id' => $command['id']] + $answer) . "\n";
        while ($line !== '') {
            $line = (string) substr($line, (int) @fwrite($this->socket, $line)); // it does not block
        }
    }

    /** Refreshes what is due, and answers who waits for a loss. */
    private function work(): void
    {
        foreach ($this->held as $held) {
            if ($held->due <= Clock::now()) {
                $held->refresh();
            }
        }
        foreach ($this->waiting as $number => [$command, $until]) {
            $lost = $this->held[$command['lease']]->lease->remaining() <= 0;
            if ($lost || Clock::now() >= $until) {
                unset($this->waiting[$number]);
                $this->say($command, ['lost' => $lost]);
            }
        }
    }

    private function answer(array $command): void
    {
        $interruptible = $command['interruptible'] ?? false;
        if ($interruptible) {
            pcntl_signal(SIGINT, static function (): void {
                throw new Interrupted('interrupted');
            });
        }
        try {
            $answer = $this->carryOut($command);
        } catch (Throwable $error) {
            $answer = ['error' => error_of($error)];
        }
        if ($interruptible) {
            pcntl_signal(SIGINT, SIG_IGN);
        }
        if ($answer !== null) {
            $this->say($command, $answer);
        }
    }

    private function carryOut(array $command): ?array
    {
        $client = $this->clients[$command['client'] ?? ''] ?? null;
        $held = $this->held[$command['lease'] ?? ''] ?? null;
        switch ($command['do']) {
            case 'client':
                $options = given($command, CLIENT);
                if (isset($options['headers'])) {
                    $options['headers'] = static function () use ($command): array {
                        return $command['headers'];
                    };
                }
                $this->clients[$command['client']] = new Client($command['servers'], $options);
                return [];
            case 'acquire':
                return $this->acquire($client, $command);
            case 'block':
                $fence = $client->using($command['resource'], function ($lease) use ($command): int {
                    $this->held[$command['lease']] = new Held($lease, $command['margin'] ?? null);
                    $until = Clock::now() + ($command['seconds'] ?? 0);
                    while (Clock::now() < $until || ($command['until_lost'] ?? false) && $lease->remaining() > 0) {
                        Clock::pause(0.01); // the handler of the signal refreshes it
                    }
                    if ($command['raise'] ?? false) {
                        throw new Raised('raised');
                    }
                    return $lease->fence();
                }, given($command, OPTIONS));
                return ['fence' => $fence];
            case 'check':
                $held->lease->check();
                return [];
            case 'remaining':
                return ['remaining' => $held->lease->remaining()];
            case 'lost':
                $this->waiting[] = [$command, Clock::now() + $command['timeout']];
                return null;
            case 'waiters':
                return ['waiters' => $held->lease->waiters(), 'wanted' => $held->wanted];
            case 'release':
                $released = $held->lease->release($command['keep'] ?? 0.0);
                $held->due = INF;
                return ['released' => $released === true];
            case 'count':
                return ['fences' => $this->count($client, $command)];
            case 'watch':
                if ($command['count'] > 1) {
                    throw new Unsupported('the library for PHP does not watch');
                }
                // fall through
            case 'state':
                return ['state' => $client->state($command['resource'])];
            case 'force':
                $client->force($command['resource'], $command['fence'] ?? null);
                return [];
            case 'pairs':
                $begun = hrtime(true);
                for ($turn = 0; $turn < $command['times']; ++$turn) {
                    $client->tryAcquire($command['resource'])->release();
                }
                return ['milliseconds' => (hrtime(true) - $begun) / 1e6 / $command['times']];
            case 'time':
                return ['time' => microtime(true)];
            default:
                throw new Unsupported($command['do']);
        }
    }

    private function acquire(Client $client, array $command): array
    {
        $call = $command['try'] ?? false ? 'tryAcquire' : 'acquire';
        $lease = $client->$call($command['resource'], given($command, OPTIONS));
        if ($lease === null) {
            return ['held' => false];
        }
        $this->held[$command['lease']] = new Held($lease, $command['margin'] ?? null);
        return ['fence' => $lease->fence(), 'remaining' => $lease->remaining(), 'slot' => $lease->slot()];
    }

    /** @return int[] */
    private function count(Client $client, array $command): array
    {
        $fences = [];
        for ($turn = 0; $turn < $command['times']; ++$turn) {
            $fences[] = $client->using($command['resource'], static function ($lease) use ($command): int {
                $number = (int) file_get_contents($command['file']);
                usleep(1000);
                file_put_contents($command['file'], $number + 1);
                return $lease->fence();
            }, given($command, OPTIONS));
        }
        return $fences;
    }
}

/** Passes commands and answers on. The first worker is the process that the suite knows. */
final class Front
{
    private const TICK = 20000; // microseconds: how often a busy worker looks at its leases

    /** @var array<int, resource> */
    private array $sockets = [];
    /** @var array<int, int> of workers; the first one is not ours to end */
    private array $pids = [];
    /** How many commands each worker has to answer. */
    private array $busy = [];
    /** Which worker has a lease, a command to answer, and may be interrupted. */
    private array $leases = [];
    private array $asked = [];
    private ?int $interruptible = null;
    private array $clients = [];

    public function __construct($socket, int $pid)
    {
        [$this->sockets, $this->pids, $this->busy] = [[$socket], [$pid], [0]];
    }

    public function run(): void
    {
        $buffers = ['in' => ''];
        $ended = false;
        while ($this->sockets) {
            $read = $this->sockets + ($ended ? [] : ['in' => STDIN]);
            [$write, $except] = [[], []];
            $isBusy = max($this->busy) > 0;
            if (!stream_select($read, $write, $except, $isBusy ? 0 : null, $isBusy ? self::TICK : null)) {
                array_map([$this, 'wake'], array_keys($this->busy));
                continue;
            }
            foreach ($read as $from => $socket) {
                $part = (string) fread($socket, 65536);
                if ($part === '' && feof($socket)) {
                    if ($from === 'in') {
                        $ended = true;
                    } else {
                        unset($this->sockets[$from]);
                        if ($from === 0 && !$ended) {
                            $this->kill();
                            return;
                        }
                    }
                    continue;
                }
                $buffers[$from] = ($buffers[$from] ?? '') . $part;
                $lines = explode("\n", $buffers[$from]);
                $buffers[$from] = array_pop($lines);
                foreach ($lines as $line) {
                    $from === 'in' ? $this->command($line) : $this->answer($from, $line);
                }
            }
            if ($ended) { // the first worker comes last, since the suite waits for it
                foreach (count($this->sockets) > 1 ? array_diff_key($this->sockets, [0]) : $this->sockets as $socket) {
                    stream_socket_shutdown($socket, STREAM_SHUT_WR);
                }
            }
        }
    }

    private function kill(): void
    {
        foreach (array_slice($this->pids, 1) as $pid) {
            posix_kill($pid, SIGKILL);
        }
    }

    private function command(string $line): void
    {
        $command = json_decode($line, true);
        if ($command['do'] === 'interrupt') {
            posix_kill($this->pids[$this->interruptible], SIGINT);
            return;
        }
        if ($command['do'] === 'client') {
            $this->clients[$command['client']] = $line;
            foreach (array_keys($this->sockets) as $worker) {
                $this->send($worker, $worker === 0 ? $line : $this->silent($line));
            }
            return;
        }
        $isNew = in_array($command['do'], ['acquire', 'block'], true);
        $worker = $isNew ? null : $this->leases[$command['lease'] ?? ''] ?? null;
        $worker = $worker ?? $this->free();
        if ($isNew) {
            $this->leases[$command['lease']] = $worker;
        }
        $this->interruptible = $command['interruptible'] ?? false ? $worker : $this->interruptible;
        if ($command['do'] !== 'lost') { // a worker does others meanwhile
            $this->asked[$command['id']] = $worker;
            ++$this->busy[$worker];
        }
        $this->send($worker, $line);
    }

    /** The same without an answer for the suite. */
    private function silent(string $line): string
    {
        return (string) json_encode(['id' => null] + json_decode($line, true));
    }

    private function send(int $worker, string $line): void
    {
        fwrite($this->sockets[$worker], "$line\n");
        $this->wake($worker);
    }

    private function wake(int $worker): void
    {
        if ($this->busy[$worker] > 0) {
            posix_kill($this->pids[$worker], SIGUSR1);
        }
    }

    private function answer(int $worker, string $line): void
    {
        preg_match('/\A\{"id":(\d+|null)/', $line, $found);
        if ($found[1] === 'null') {
            return;
        }
        if (isset($this->asked[(int) $found[1]])) {
            unset($this->asked[(int) $found[1]]);
            --$this->busy[$worker];
        }
        fwrite(STDOUT, "$line\n");
        fflush(STDOUT);
    }

    /** A worker that has nothing to do, or the one that has the least. */
    private function free(): int
    {
        $least = (int) array_search(min($this->busy), $this->busy, true);
        if ($this->busy[$least] === 0 || count($this->busy) === MOST_WORKERS) {
            return $least;
        }
        [$mine, $its] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        $pid = pcntl_fork();
        if ($pid === 0) {
            array_map('fclose', array_merge($this->sockets, [$mine, STDIN, STDOUT]));
            pcntl_signal(SIGINT, SIG_IGN);
            (new Worker($its))->run();
            exit(0);
        }
        fclose($its);
        [$this->sockets[], $this->pids[], $this->busy[]] = [$mine, $pid, 0];
        $new = count($this->pids) - 1;
        foreach ($this->clients as $line) {
            $this->send($new, $this->silent($line));
        }
        return $new;
    }
}

pcntl_async_signals(true);
pcntl_signal(SIGUSR1, SIG_IGN); // until there is a worker
[$first, $second] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
$parent = getmypid();
if (pcntl_fork() === 0) {
    fclose($first);
    (new Front($second, $parent))->run();
    exit(0);
}
array_map('fclose', [$second, STDIN, STDOUT]);
pcntl_signal(SIGINT, SIG_IGN);
(new Worker($first))->run();
