// Validates JSON values against schemas of openapi.yaml.
//
//   node validate.js FILE < checks.json
//
// FILE is the description, as JSON. Standard input is a list of {"at": JSON pointer to a schema, "value": …}; standard output is a
// list of messages, one for each check, empty where the value is valid.
//
// The description lets answers gain members later. A test wants to know of each member that is not described, so all object
// schemas are closed here first.
"use strict";

const fs = require("node:fs");
const Ajv = require("ajv/dist/2020").default;
const formats = require("ajv-formats").default;

// Adds `unevaluatedProperties: false` to each object schema that is not a part of another one's `allOf`.
function close(schema, isPart) {
	if (Array.isArray(schema)) return schema.forEach((part) => close(part, isPart));
	if (schema === null || typeof schema !== "object") return;
	if (!isPart && (schema.allOf || (schema.properties && schema.additionalProperties === undefined))) schema.unevaluatedProperties = false;
	for (const [key, value] of Object.entries(schema)) {
		if (key === "properties") Object.values(value).forEach((member) => close(member, false));
		else close(value, key === "allOf");
	}
}

const description = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
for (const [name, schema] of Object.entries(description.components.schemas)) close(schema, name === "Problem");
const ajv = new Ajv({ strict: false, allErrors: true });
formats(ajv);
ajv.addSchema({ $id: "openapi", ...description });

const checks = JSON.parse(fs.readFileSync(0, "utf8"));
const messages = checks.map(({ at, value }) => {
	const validate = ajv.getSchema(`openapi#${at}`);
	if (!validate) return `no schema at ${at}`;
	return validate(value) ? "" : ajv.errorsText(validate.errors);
});
process.stdout.write(JSON.stringify(messages) + "\n");
