// SPDX-License-Identifier: MIT
"use strict";
// The exports of the package. `import` finds the names, too: Node reads them from this form.

module.exports = { ...require("./client.js"), ...require("./lease.js"), ...require("./errors.js") };
