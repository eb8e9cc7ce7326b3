/* What all parts of redlockctl stand on: the command line, addresses and credentials of servers, durations, exit
 * statuses, messages.
 *
 * The one header of this folder for the others; the parts are described in their own headers. */
#ifndef CLI_BASE_H
#define CLI_BASE_H

#include "api_key.h"
#include "arguments.h"
#include "credentials.h"
#include "duration.h"
#include "exit_status.h"
#include "report.h"
#include "server.h"

#endif
