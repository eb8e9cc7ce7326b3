<?php
// SPDX-License-Identifier: MIT
// Loads the library where there is no Composer.

require_once __DIR__ . '/errors.php';

spl_autoload_register(static function (string $class): void {
    if (preg_match('/\ARedlockd\\\\(\w+)\z/', $class, $found) && is_file(__DIR__ . "/$found[1].php")) {
        require_once __DIR__ . "/$found[1].php";
    }
});
