<?php
// SPDX-License-Identifier: MIT

namespace Redlockd;

/** What is left to do at the end of this program, also after exit() in the handler of a signal. @internal */
final class AtEnd
{
    /** @var ?array<int, array{callable(): void, callable(): bool}> by object; null before the first one */
    private static ?array $work = null;
    private static int $process = 0;

    /**
     * @param callable(): void $work
     * @param callable(): bool $isOver nothing is left to do
     */
    public static function add(object $object, callable $work, callable $isOver): void
    {
        if (self::$work === null) {
            register_shutdown_function([self::class, 'run']);
        }
        if (self::$process !== getmypid()) { // a forked child does nothing for its parent
            [self::$work, self::$process] = [[], (int) getmypid()];
        }
        if (count(self::$work) % 64 === 63) { // the program has forgotten those that are over
            self::$work = array_filter(self::$work, static function (array $each): bool {
                return !$each[1]();
            });
        }
        self::$work[spl_object_id($object)] = [$work, $isOver];
    }

    public static function remove(object $object): void
    {
        unset(self::$work[spl_object_id($object)]);
    }

    /** @internal */
    public static function run(): void
    {
        foreach (self::$process === getmypid() ? (array) self::$work : [] as [$work]) {
            try {
                $work();
            } catch (\Throwable $error) {
                continue; // the lease ends by itself
            }
        }
    }
}
