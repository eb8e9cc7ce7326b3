/* Which format of the metrics a client wants: the header Accept (RFC 9110, 12.5.1). */
#ifndef ACCEPT_H
#define ACCEPT_H

#include <stdbool.h>
#include <stddef.h>

/* How good the client finds what we have, in thousandths; ACCEPT_UNNAMED: it did not say. Begin with ACCEPT_NOTHING. */
struct accept {
	int openmetrics; /* application/openmetrics-text, of version 1.0.0 where it names one */
	int text;        /* text/plain, of version 0.0.4 where it names one */
	int any_text;    /* text, any of it */
	int any;         /* anything */
};
enum { ACCEPT_UNNAMED = -1 };
#define ACCEPT_NOTHING ((struct accept){ACCEPT_UNNAMED, ACCEPT_UNNAMED, ACCEPT_UNNAMED, ACCEPT_UNNAMED})

/* Takes in the value of one header Accept; there may be several. What is malformed in it, or of no meaning here, is
 * passed over. */
void accept_read(struct accept *accept, const char *value, size_t len);

/* True if the client names OpenMetrics and likes it no less than plain text. Whoever takes anything gets plain text. */
bool accept_prefers_openmetrics(const struct accept *accept);

#endif
