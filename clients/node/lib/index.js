"use strict";
// What the package exports. `import` finds the names, too: Node reads them from this form.

const { Client } = require("./client.js");
const { Lease } = require("./lease.js");

module.exports = { Client, Lease, ...require("./errors.js") };
