/* Figures of redlockd about itself: counters and histograms, their page for Prometheus, and GET /stats. The one header
 * of this folder for the others. */
#ifndef METRICS_H
#define METRICS_H

#include "metrics_counters.h"
#include "stats.h"

#endif
