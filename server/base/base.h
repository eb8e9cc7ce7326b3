/* The parts that every other folder of the server and redlockctl stand on: version, clock, log, random numbers, files
 * that hold secrets, hashes, growing texts, UTF-8. Nothing here knows what the program serves.
 *
 * The one header of this folder for the others; the parts are described in their own headers. */
#ifndef BASE_H
#define BASE_H

#include "build.h"
#include "clock.h"
#include "log.h"
#include "random.h"
#include "secret_file.h"
#include "siphash.h"
#include "text.h"
#include "utf8.h"

#endif
