"use strict";
// What the package exports. `import` finds the names, too: Node reads them from this form.

module.exports = { ...require("./client.js"), ...require("./lease.js"), ...require("./errors.js") };
