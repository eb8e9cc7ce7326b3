// SPDX-License-Identifier: MIT
// A caller by the types that openapi-typescript makes from openapi.yaml: takes a lock, is refused a second time, extends, looks, releases.
// Prints one word for each step; test_generated.py reads them. The types are part of the test: a comment @ts-expect-error is an error where there is none.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Lease = components["schemas"]["Lease"];
type Json = "application/json" | "application/problem+json"; // no streams: data is of the type that is documented for JSON

const [baseUrl = "", resource = "", ill = ""] = process.argv.slice(2);
const redlockd = createClient<paths, Json>({ baseUrl });
const path = { resource };

const acquired = await redlockd.POST("/locks", { body: { resource, ttl_ms: 30000 } });
if (acquired.error) throw new Error(acquired.error.detail);
const lease: Lease = acquired.data;
console.log("acquired", acquired.response.status, lease.fence > 0 && lease.validity_ms < 30000);

const refused = await redlockd.POST("/locks", { body: { resource } });
if (refused.error?.code !== "locked") throw new Error("not refused");
// @ts-expect-error a locked problem has no list of errors
refused.error.errors;
const { retry_after_ms, holder, votes } = refused.error;
console.log("refused", refused.response.status, true, refused.error.code, retry_after_ms > 0, holder?.fence === lease.fence, votes.needed);

const header = { "Lock-Token": lease.token };
const extended = await redlockd.PUT("/locks/{resource}", { params: { path, header }, body: { ttl_ms: 60000 } });
if (extended.error) throw new Error(extended.error.detail);
console.log("extended", extended.response.status, extended.data.validity_ms > 30000, extended.data.fence === lease.fence);

const held = await redlockd.GET("/locks/{resource}", { params: { path } });
if (held.error) throw new Error(held.error.detail);
if (!held.data) throw new Error("nothing new");
console.log("inspected", held.data.held, held.data.fence === lease.fence);

const named = await redlockd.PUT("/locks", { params: { header }, body: { resource, ttl_ms: 60000 } });
const one = await redlockd.GET("/locks", { params: { query: { resource } } });
const page = await redlockd.GET("/locks", { params: { query: { prefix: resource } } });
if (named.error ?? one.error ?? page.error) throw new Error("refused");
if (typeof one.data !== "object" || !("held" in one.data)) throw new Error("not the state of a lock");
if (typeof page.data !== "object" || !("locks" in page.data)) throw new Error("not a page of locks");
if (!named.data || !("fence" in named.data)) throw new Error("not a lease");
console.log("named", named.response.status, named.data.fence === lease.fence, one.data.fence === lease.fence, page.data.locks.length);

const leases = [resource, resource + "/other"].map((name) => ({ resource: name, token: lease.token }));
const many = await redlockd.PUT("/locks", { body: { leases } });
if (!many.data || !("leases" in many.data)) throw new Error("not the results of many");
const [good, bad] = many.data.leases;
if (!good || !("fence" in good) || !bad || !("code" in bad)) throw new Error("not a lease and a problem");
console.log("many", many.response.status, good.fence === lease.fence, bad.code);

const released = await redlockd.DELETE("/locks/{resource}", { params: { path, header } });
console.log("released", released.response.status);

const again = await redlockd.DELETE("/locks/{resource}", { params: { path, header } });
if (again.error?.code !== "lease-expired") throw new Error("not expired");
console.log("expired", again.response.status, true, again.error.code);

const unavailable = await createClient<paths, Json>({ baseUrl: ill }).POST("/locks", { body: { resource } });
if (unavailable.error?.code !== "no-quorum") throw new Error("a quorum");
console.log("unavailable", unavailable.response.status, true, unavailable.error.code, unavailable.error.votes?.needed);

const masters = await redlockd.GET("/masters");
if (masters.error) throw new Error(masters.error.detail);
console.log("masters", masters.data.quorum.voting, masters.data.masters[0]?.reason === null, typeof masters.data.masters[0]?.version === "string");
