/* Who calls, what the caller may do, and how often: keys, certificates, rights, origins, rates.
 *
 * The one header of this folder for the others; the parts are described in their own headers. It uses server/base
 * alone: what a request holds comes in as plain structs. */
#ifndef AUTH_H
#define AUTH_H

#include "access.h"
#include "json_memory.h"
#include "keys.h"
#include "origin.h"
#include "peers.h"
#include "rate.h"

#endif
