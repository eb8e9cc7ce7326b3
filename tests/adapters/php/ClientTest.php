<?php
// SPDX-License-Identifier: MIT
// What is special in the library for PHP, with a real redlockd at REDLOCKD_URL. tests/clients has the suite of all
// languages.

use PHPUnit\Framework\TestCase;
use Redlockd\Client;
use Redlockd\Locked;
use Redlockd\LockLost;
use Redlockd\NoAnswer;

final class ClientTest extends TestCase
{
    private Client $client;
    private string $name;

    protected function setUp(): void
    {
        $this->client = new Client((string) getenv('REDLOCKD_URL'));
        $this->name = 'php/' . bin2hex(random_bytes(8));
    }

    public function testRefreshMovesTheEnd(): void
    {
        $lease = $this->client->acquire($this->name, ['ttl' => 20]);
        self::assertLessThanOrEqual(18, $lease->remaining());
        $lease->refresh();
        self::assertLessThanOrEqual(18, $lease->remaining());
        $lease->refresh(50);
        self::assertGreaterThan(35, $lease->remaining());
        self::assertLessThanOrEqual(45, $lease->remaining());
        self::assertGreaterThan(40000, $this->client->state($this->name)['remaining_ms']);
        $before = $lease->remaining();
        $lease->refresh(5);
        self::assertGreaterThan($before - 30, $lease->remaining(), 'it never moves back');
        self::assertTrue($lease->release());
        self::assertFalse($lease->release());
        self::assertSame(0.0, $lease->remaining());
    }

    public function testARefreshThatIsAnsweredTooLateBringsNothingBack(): void
    {
        $late = false;
        $client = new Client((string) getenv('REDLOCKD_URL'), ['headers' => static function () use (&$late): array {
            while ($late && hrtime(true) < $late) { // the program is busy right before it sends
                usleep(1000);
            }
            return [];
        }]);
        $lease = $client->acquire($this->name, ['ttl' => 4, 'margin' => 2]); // the server has it for two seconds more
        while ($lease->remaining() > 0.5) {
            usleep(1000);
        }
        $late = hrtime(true) + (int) (1e9 * ($lease->remaining() + 0.1));
        try {
            $lease->refresh();
            self::fail('it was lost before');
        } catch (LockLost $error) {
            self::assertSame(0.0, $lease->remaining());
        }
    }

    public function testVerifyTellsAForcedReleaseAndMovesNothing(): void
    {
        $lease = $this->client->acquire($this->name, ['ttl' => 30]);
        $left = $this->client->state($this->name)['remaining_ms'];
        $lease->verify();
        self::assertLessThanOrEqual($left, $this->client->state($this->name)['remaining_ms']);
        $this->client->force($this->name, $lease->fence());
        $lease->check();
        try {
            $lease->verify();
            self::fail('it was told that it holds');
        } catch (LockLost $error) {
            self::assertSame('lease-expired', $error->cause());
        }
        $this->expectException(LockLost::class);
        $lease->check();
    }

    public function testUsing(): void
    {
        $result = $this->client->using($this->name, function (Redlockd\Lease $lease): array {
            $seen = $this->client->state($this->name)['fence'];
            return [$lease->fence(), $seen, $this->client->tryAcquire($this->name)];
        });
        self::assertSame($result[0], $result[1]);
        self::assertNull($result[2]);
        self::assertFalse($this->client->state($this->name)['held']);
        $this->expectException(LockLost::class);
        $this->client->using($this->name, function (): void {
            $this->client->force($this->name);
        });
    }

    public function testALeaseIsHandedOver(): void
    {
        $lease = $this->client->acquire($this->name, ['ttl' => 20]);
        $other = new Client((string) getenv('REDLOCKD_URL'));
        $resumed = $other->resume($this->name, $lease->detach(), 40);
        self::assertSame($lease->fence(), $resumed->fence());
        self::assertGreaterThan(25, $resumed->remaining());
        self::assertTrue($resumed->release());
        $this->expectException(LockLost::class);
        $other->resume($this->name, $lease->token());
    }

    public function testAForkedChildHasNoLease(): void
    {
        $lease = $this->client->acquire($this->name, ['ttl' => 30]);
        $pid = pcntl_fork();
        if ($pid === 0) {
            $cause = '';
            try {
                $lease->check();
            } catch (LockLost $error) {
                $cause = $error->cause();
            }
            $isRight = $cause === 'forked' && $lease->remaining() === 0.0 && $lease->release() === false
                && $this->client->tryAcquire($this->name) === null
                && $this->client->acquire("$this->name/child")->release() === true;
            pcntl_exec('/bin/sh', ['-c', $isRight ? 'exit 0' : 'exit 1']); // nothing of PHPUnit runs here
        }
        pcntl_waitpid($pid, $status);
        self::assertSame(0, pcntl_wexitstatus($status));
        $lease->verify();
        self::assertTrue($lease->release());
    }

    public function testAHandlerOfASignalRefreshesAnotherLeaseDuringAWait(): void
    {
        $mine = $this->client->acquire("$this->name/mine", ['ttl' => 30]);
        $held = $this->client->acquire($this->name, ['ttl' => 30]);
        $refreshed = 0;
        $async = pcntl_async_signals(true);
        pcntl_signal(SIGUSR1, function () use ($mine, $held, &$refreshed): void {
            $held->release(); // the answer to the request that waits comes meanwhile
            for (; $refreshed < 20; ++$refreshed) {
                $mine->refresh(50);
            }
        });
        $pid = pcntl_fork();
        if ($pid === 0) {
            $parent = posix_getppid();
            while ($this->client->state($this->name)['waiters'] === 0) {
                usleep(5000);
            }
            posix_kill($parent, SIGUSR1);
            posix_kill((int) getmypid(), SIGKILL); // nothing of PHPUnit runs here
        }
        $lease = $this->client->acquire($this->name, ['ttl' => 30]);
        pcntl_waitpid($pid, $status);
        pcntl_signal(SIGUSR1, SIG_DFL);
        pcntl_async_signals($async);
        self::assertSame(20, $refreshed);
        self::assertGreaterThan(35, $mine->remaining());
        self::assertGreaterThan($held->fence(), $lease->fence());
        self::assertTrue($lease->release() && $mine->release());
    }

    public function testAWaitWithoutAnEnd(): void
    {
        $this->expectException(Locked::class);
        $lease = $this->client->acquire($this->name, ['wait' => INF]);
        try {
            $this->client->acquire($this->name, ['wait' => 0]);
        } finally {
            self::assertTrue($lease->release());
        }
    }

    public function testNoSecretIsShown(): void
    {
        $client = new Client((string) getenv('REDLOCKD_URL'), ['key' => 'SECRET']);
        $lease = $client->acquire($this->name);
        $shown = print_r([$client, $lease], true);
        self::assertStringNotContainsString('SECRET', $shown);
        self::assertStringNotContainsString($lease->token(), $shown);
        self::assertStringContainsString((string) $lease->fence(), $shown);
        try {
            serialize($lease);
            self::fail('it was serialized');
        } catch (LogicException $error) {
            self::assertStringNotContainsString($lease->token(), $error->getMessage());
        }
        self::assertTrue($lease->release());
    }

    public function testWrongOptions(): void
    {
        $mistakes = [
            "there is no option 'tll'" => ['tll' => 30],
            'ttl must be a positive number of seconds: 0' => ['ttl' => 0],
            'wait must be a number of seconds that is not negative: -1' => ['wait' => -1],
            'margin must be a number of seconds from 0 to half of ttl: 6' => ['margin' => 6, 'ttl' => 10],
            'owner: Malformed UTF-8' => ['owner' => "\xff"],
        ];
        foreach ($mistakes as $told => $options) {
            try {
                $this->client->acquire($this->name, $options);
                self::fail("$told: was taken");
            } catch (InvalidArgumentException $error) {
                self::assertStringContainsString($told, $error->getMessage());
            }
        }
        foreach (["\xff", [$this->name, 7], 7, null] as $name) {
            try {
                $this->client->acquire($name);
                self::fail('the name was taken');
            } catch (InvalidArgumentException $error) {
                self::assertStringContainsString('UTF-8', $error->getMessage());
            }
        }
    }

    public function testWrongClients(): void
    {
        $mistakes = [
            'servers: no server' => [[], []],
            'servers: not the address of a server: "ftp:' => ['ftp://127.0.0.1', []],
            'servers: not the address of a server: "http:\/\/a b"' => ['http://a b', []],
            "there is no option 'keys'" => ['http://127.0.0.1', ['keys' => 'x']],
            'key: it has characters' => ['http://127.0.0.1', ['key' => "a\r\nb"]],
            'timeout must be' => ['http://127.0.0.1', ['timeout' => 0]],
            'certificate: two files' => ['https://127.0.0.1', ['certificate' => __FILE__]],
            'certificate: two' => ['https://127.0.0.1', ['certificate' => [__FILE__]]],
            'certificate: the file /nonexistent' => ['https://127.0.0.1', ['certificate' => [__FILE__, '/nonexistent']]],
            'ca: the file /nonexistent' => ['https://127.0.0.1', ['ca' => '/nonexistent']],
        ];
        foreach ($mistakes as $told => [$servers, $options]) {
            try {
                new Client($servers, $options);
                self::fail("$told: was taken");
            } catch (InvalidArgumentException $error) {
                self::assertStringContainsString($told, $error->getMessage());
            }
        }
    }

    public function testAFunctionOfHeadersThatFailsCostsNoLease(): void
    {
        $failures = [new RuntimeException('no trace'), new TypeError('no array')];
        foreach ($failures as $failure) {
            $client = new Client((string) getenv('REDLOCKD_URL'), ['headers' => static function () use ($failure): array {
                throw $failure;
            }]);
            $lease = $client->acquire($this->name);
            $lease->refresh();
            self::assertTrue($lease->release());
        }
    }

    public function testTheProxyOfTheEnvironmentIsNotUsed(): void
    {
        putenv('http_proxy=http://127.0.0.1:1');
        try {
            self::assertTrue($this->client->acquire($this->name)->release());
        } finally {
            putenv('http_proxy');
        }
        $this->expectException(NoAnswer::class);
        (new Client('http://127.0.0.1:1'))->acquire($this->name, ['wait' => 0]);
    }
}
