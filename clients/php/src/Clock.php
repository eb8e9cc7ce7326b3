<?php
// SPDX-License-Identifier: MIT

namespace Redlockd;

/** The clock by which all leases are counted. @internal */
final class Clock
{
    private static float $started = 0.0;
    private static float $slept = 0.0;
    private static float $looked = -INF;

    /**
     * Seconds of a clock that nobody can set and that goes on while the machine sleeps. hrtime() stands still then.
     * /proc/uptime of Linux goes on, but counts in hundredths of a second, so it only tells the difference. It is not
     * read twice in a millisecond: a machine takes longer to fall asleep and to wake up.
     */
    public static function now(): float
    {
        $now = hrtime(true) / 1e9;
        if (PHP_OS_FAMILY === 'Linux' && $now - self::$looked >= 0.001) {
            $uptime = @file_get_contents('/proc/uptime');
            if ($uptime !== false) { // open_basedir may forbid it
                $ahead = (float) $uptime - $now;
                self::$started = self::$looked === -INF ? $ahead : self::$started;
                self::$slept = max(self::$slept, $ahead - self::$started);
                self::$looked = $now;
            }
        }
        return $now + self::$slept;
    }

    /** The handler of a signal may end it by an exception. */
    public static function pause(float $seconds): void
    {
        $until = self::now() + $seconds;
        while (($left = $until - self::now()) > 0) {
            usleep((int) (1e6 * min($left, 1.0)) + 1); // a signal ends it early
        }
    }
}
