<?php
// SPDX-License-Identifier: MIT
// A program that test_php.py drives by lines: program.php MODE NAME

require __DIR__ . '/load.php';

use Redlockd\Client;
use Redlockd\RedlockdException;

[, $mode, $name] = $argv;
$client = new Client((string) getenv('REDLOCKD_URL'));

function say(string $line): void
{
    fwrite(STDOUT, "$line\n");
}

/** What happens, as a word. */
function outcome(callable $call): string
{
    try {
        $call();
        return 'done';
    } catch (RedlockdException $error) {
        return $error->errorCode();
    }
}

switch ($mode) {
    case 'hold': // each line: refresh, remaining or release
        $lease = $client->acquire($name, ['ttl' => (float) $argv[3]]);
        say((string) $lease->fence());
        while (($line = fgets(STDIN)) !== false) {
            switch (trim($line)) {
                case 'refresh':
                    say(outcome([$lease, 'refresh']));
                    break;
                case 'remaining':
                    say((string) $lease->remaining());
                    break;
                case 'release':
                    say(json_encode($lease->release()));
            }
        }
        break;
    case 'count': // add one to a file, under the lock, so many times
        for ($turn = 0; $turn < (int) $argv[4]; ++$turn) {
            $client->using($name, static function () use ($argv): void {
                $number = (int) file_get_contents($argv[3]);
                usleep(1000);
                file_put_contents($argv[3], $number + 1);
            }, ['ttl' => 30]);
            say('one');
        }
        break;
    case 'terminate': // SIGTERM comes while it waits for NAME
        pcntl_async_signals(true);
        pcntl_signal(SIGTERM, static function (): void {
            exit(143);
        });
        $client->acquire("$name/first");
        say('waits');
        $client->acquire($name);
        break;
    case 'exit':
        $client->acquire($name);
        exit(3);
    case 'throw':
        $client->acquire($name);
        throw new RuntimeException('nobody catches it');
    case 'dropped':
        $client->acquire($name);
        say($client->tryAcquire($name) === null ? 'held' : 'free');
        break;
    case 'detach':
        say($client->acquire($name)->detach());
        break;
}
