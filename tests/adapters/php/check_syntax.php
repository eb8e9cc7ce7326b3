<?php
// SPDX-License-Identifier: MIT
// Says what in the files of the command line needs a newer PHP than 7.4, as far as the parser of Debian knows it.

require 'PhpParser/autoload.php';

use PhpParser\Node;
use PhpParser\NodeTraverser;
use PhpParser\NodeVisitorAbstract;
use PhpParser\ParserFactory;

const NEW_FUNCTIONS = [
    'str_contains', 'str_starts_with', 'str_ends_with', 'get_debug_type', 'get_resource_id', 'fdiv', 'array_is_list',
    'preg_last_error_msg', 'fsync', 'fdatasync', 'array_find', 'array_any', 'array_all', 'json_validate', 'mb_str_pad',
];
const NEW_NODES = [
    Node\Attribute::class, Node\Expr\Match_::class, Node\Expr\NullsafeMethodCall::class,
    Node\Expr\NullsafePropertyFetch::class, Node\IntersectionType::class, Node\UnionType::class,
    Node\Stmt\Enum_::class, Node\VariadicPlaceholder::class,
];

final class Newer extends NodeVisitorAbstract
{
    /** @var string[] */
    public array $found = [];

    public function enterNode(Node $node)
    {
        $isNew = in_array(get_class($node), NEW_NODES, true)
            || $node instanceof Node\Expr\Throw_ && !$node->getAttribute('isStatement')
            || $node instanceof Node\Arg && $node->name !== null
            || $node instanceof Node\Param && ($node->flags !== 0 || $node->default instanceof Node\Expr\New_)
            || $node instanceof Node\Stmt\Catch_ && $node->var === null
            || $node instanceof Node\Stmt\Property && $node->isReadonly()
            || $node instanceof Node\Stmt\ClassConst && $node->isFinal()
            || $node instanceof Node\Identifier && in_array($node->toLowerString(), ['mixed', 'never'], true)
            || $node instanceof Node\Name && $node->toLowerString() === 'static' && $this->isReturnType($node)
            || $node instanceof Node\Expr\ClassConstFetch && $node->class instanceof Node\Expr
            || $node instanceof Node\Expr\FuncCall && $node->name instanceof Node\Name
                && in_array($node->name->toLowerString(), NEW_FUNCTIONS, true);
        if ($isNew) {
            $this->found[] = "{$node->getStartLine()}: {$node->getType()}";
        }
        if ($node instanceof Node\Stmt\Expression) {
            $node->expr->setAttribute('isStatement', true);
        }
        if ($node instanceof Node\FunctionLike && $node->getReturnType() instanceof Node) {
            $node->getReturnType()->setAttribute('isReturnType', true);
        }
        return null;
    }

    private function isReturnType(Node $node): bool
    {
        return (bool) $node->getAttribute('isReturnType');
    }
}

$factory = new ParserFactory();
$parser = method_exists($factory, 'createForHostVersion') // of its version 5
    ? $factory->createForHostVersion() : $factory->create(ParserFactory::ONLY_PHP7);
$status = 0;
foreach (array_slice($argv, 1) as $file) {
    $newer = new Newer();
    $traverser = new NodeTraverser();
    $traverser->addVisitor($newer);
    $traverser->traverse($parser->parse((string) file_get_contents($file)));
    foreach ($newer->found as $found) {
        echo "$file:$found\n";
        $status = 1;
    }
}
exit($status);
