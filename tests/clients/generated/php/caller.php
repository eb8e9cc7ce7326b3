<?php
// A caller of the PHP client that openapi-generator makes from openapi.yaml: takes a lock, is refused a second time, extends, looks, releases.
// Prints one word for each step; test_generated.py reads them.
use GuzzleHttp\Client;
use Redlockd\Api\LeasesApi;
use Redlockd\Api\OperationApi;
use Redlockd\ApiException;
use Redlockd\Configuration;
use Redlockd\Model\AcquireRequest;
use Redlockd\Model\ExtendItem;
use Redlockd\Model\ExtendNamedRequest;
use Redlockd\Model\ExtendRequest;
use Redlockd\Model\ReleaseRequest;

require 'GuzzleHttp/autoload.php'; // of Debian, in PHP's path
spl_autoload_register(function ($name) {
    $file = __DIR__ . '/redlockd/lib/' . strtr(substr($name, strlen('Redlockd\\')), '\\', '/') . '.php';
    if (is_file($file)) {
        require $file;
    }
});

function client(string $type, string $url)
{
    return new $type(new Client(), (new Configuration())->setHost($url));
}

function problem(callable $call): ApiException
{
    try {
        $call();
    } catch (ApiException $problem) {
        return $problem;
    }
    throw new LogicException('no problem');
}

function say(...$words): void
{
    echo implode(' ', array_map(fn ($word) => is_bool($word) ? ($word ? 'true' : 'false') : $word, $words)), "\n";
}

[, $url, $resource, $without_quorum] = $argv;
$leases = client(LeasesApi::class, $url);
$ill = client(LeasesApi::class, $without_quorum);
$wanted = (new AcquireRequest())->setResource($resource)->setTtlMs(30000);

[$lease, $status] = $leases->acquireLockWithHttpInfo($wanted);
say('acquired', $status, $lease->getFence() > 0 && $lease->getValidityMs() < 30000);

$refused = problem(fn () => $leases->acquireLock($wanted));
$locked = $refused->getResponseObject();
say('refused', $refused->getCode(), true, $locked->getCode(), $locked->getRetryAfterMs() > 0,
    $locked->getHolder()->getFence() === $lease->getFence(), $locked->getVotes()->getNeeded());

[$extended, $status] = $leases->extendLockWithHttpInfo($resource, $lease->getToken(), (new ExtendRequest())->setTtlMs(60000));
say('extended', $status, $extended->getValidityMs() > 30000, $extended->getFence() === $lease->getFence());

$state = $leases->inspectLock($resource);
say('inspected', $state->getHeld(), $state->getFence() === $lease->getFence());

[$named, $status] = $leases->extendLocksWithHttpInfo((new ExtendNamedRequest())->setResource($resource)->setTtlMs(60000), $lease->getToken());
$one = $leases->inspectLock($resource); // getLocks takes every answer for a page here
$page = $leases->getLocks(prefix: $resource);
say('named', $status, $named->getFence() === $lease->getFence(), $one->getFence() === $lease->getFence(), count($page->getLocks()));

$items = array_map(fn ($name) => (new ExtendItem())->setResource($name)->setToken($lease->getToken()), [$resource, $resource . '/other']);
[$many, $status] = $leases->extendLocksWithHttpInfo((new ExtendNamedRequest())->setLeases($items));
[$good, $bad] = $many->getLeases();
say('many', $status, $good->getFence() === $lease->getFence(), $bad->getCode());

$given = (new ReleaseRequest())->setToken($lease->getToken());
say('released', $leases->releaseLockWithHttpInfo($resource, release_request: $given)[1]);

$gone = problem(fn () => $leases->releaseLock($resource, release_request: $given));
say('expired', $gone->getCode(), true, $gone->getResponseObject()->getCode());

$unavailable = problem(fn () => $ill->acquireLock($wanted));
$why = $unavailable->getResponseObject();
say('unavailable', $unavailable->getCode(), true, $why->getCode(), $why->getVotes()->getNeeded());

$masters = client(OperationApi::class, $url)->getMasters();
say('masters', $masters->getQuorum()->getVoting(), $masters->getMasters()[0]->getReason() === null, $masters->getMasters()[0]->getVersion() !== null);
