<?php
// SPDX-License-Identifier: MIT
// Loads the client, the store of Symfony Lock and Debian's Symfony Lock, without Composer.

require __DIR__ . '/../../../clients/php/src/autoload.php';
require 'Symfony/Component/Lock/autoload.php';
require __DIR__ . '/../../../clients/adapters/symfony-lock/src/RedlockdStore.php';
