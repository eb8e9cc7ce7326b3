-- SPDX-License-Identifier: MIT
-- What wrk asks for, by the variables LOAD and TAG; at the end one line of JSON.
--
--   healthz  GET /healthz
--   acquire  POST /locks, another name each time
--   pair     the same, and a DELETE for each lease that was given, on whichever connection is free; with RESOURCE one name, with MEMBERS more of the body
--   refused  POST /locks, always the same name: the first has it
--   etcd     POST /v3/lock/lock of etcd's JSON gateway, under the lease of the variable ETCD_LEASE
--   etcd-pair  the same, and a POST /v3/lock/unlock for each key that was given
--
-- For one thread (wrk -t1): names are counted in it.
local load, tag = os.getenv("LOAD"), os.getenv("TAG")
local count, given = 0, {}

local alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local function base64(text)
	local out = {}
	for i = 1, #text, 3 do
		local a, b, c = text:byte(i, i + 2)
		local n = a * 65536 + (b or 0) * 256 + (c or 0)
		for k = 1, 4 do
			local at = math.floor(n / 64 ^ (4 - k)) % 64 + 1
			out[#out + 1] = (k < 3 or (k == 3 and b) or (k == 4 and c)) and alphabet:sub(at, at) or "="
		end
	end
	return table.concat(out)
end

local function name()
	count = count + 1
	return "bench/" .. tag .. "/" .. count
end

local function acquire(resource)
	return wrk.format("POST", "/locks", nil, '{"resource":"' .. (resource or os.getenv("RESOURCE") or name()) .. '","ttl_ms":10000' .. (os.getenv("MEMBERS") or "") .. "}")
end

local function lock()
	return wrk.format("POST", "/v3/lock/lock", nil, '{"name":"' .. base64(name()) .. '","lease":"' .. os.getenv("ETCD_LEASE") .. '"}')
end

local asks = {
	healthz = function() return wrk.format("GET", "/healthz") end,
	acquire = function() return acquire() end,
	refused = function() return acquire("bench/" .. tag) end,
	pair = function()
		local lease = table.remove(given)
		return lease and wrk.format("DELETE", "/locks/" .. lease[1], {["Lock-Token"] = lease[2]}) or acquire()
	end,
	etcd = lock,
	["etcd-pair"] = function()
		local key = table.remove(given)
		return key and wrk.format("POST", "/v3/lock/unlock", nil, '{"key":"' .. key .. '"}') or lock()
	end,
}
request = asks[load]

if load == "pair" then
	response = function(status, _, body)
		if status == 201 then
			given[#given + 1] = {body:match('"resource":"([^"]+)"'), body:match('"token":"([^"]+)"')}
		end
	end
end

if load == "etcd-pair" then
	response = function(_, _, body)
		given[#given + 1] = body:match('"key":"([^"]+)"')
	end
end

function done(summary, latency)
	local e = summary.errors
	if load == "refused" then
		e.status = summary.requests - e.status - 1 -- those that were granted, but for the first
	end
	io.write(string.format('\n{"requests":%d,"seconds":%.3f,"errors":%d,"p50_us":%d,"p99_us":%d,"p999_us":%d,"max_us":%d}\n', summary.requests,
		summary.duration / 1e6, e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50), latency:percentile(99),
		latency:percentile(99.9), latency.max))
end
