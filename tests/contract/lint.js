// SPDX-License-Identifier: MIT
// Checks an OpenAPI description by the rules of redocly.yaml: `node lint.js FILE`. `redocly lint` does the same, with some
// two hundred packages more.

const path = require('path');
const { formatProblems, getTotals, lint, loadConfig } = require('@redocly/openapi-core');

async function main(file) {
    const config = await loadConfig({ configPath: path.join(__dirname, 'redocly.yaml') });
    const problems = await lint({ ref: file, config });
    const totals = getTotals(problems);
    formatProblems(problems, { format: 'codeframe', totals, version: '' });
    process.exitCode = totals.errors + totals.warnings > 0 ? 1 : 0;
}

main(process.argv[2]);
