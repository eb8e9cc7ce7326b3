/* Which format /metrics is asked for. The long values are what Prometheus and others really send. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "api/calls/calls_internal.h"

#define OPEN "application/openmetrics-text"

static bool prefers(const char *first, const char *second)
{
	struct accept accept = ACCEPT_NOTHING;

	if (first != NULL)
		accept_read(&accept, first, strlen(first));
	if (second != NULL)
		accept_read(&accept, second, strlen(second));
	return accept_prefers_openmetrics(&accept);
}

static const char *const open_metrics[] = {
	/* Prometheus 2.42; 2.49 to 2.55; 3 */
	OPEN ";version=1.0.0," OPEN ";version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
	OPEN ";version=1.0.0;q=0.5," OPEN ";version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
	OPEN ";version=1.0.0;escaping=allow-utf-8;q=0.6," OPEN
	     ";version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
	     "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
	"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6," OPEN
	";version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
	OPEN,
	OPEN "; version=1.0.0; charset=utf-8",
	"Application/OpenMetrics-Text;VERSION=1.0.0",
	" " OPEN " ; version=\"1.0.0\" ; q=0.9 ,\ttext/plain;q=0.8",
	OPEN ", */*",
	OPEN ",text/plain",
	OPEN ";q=0.001",
	OPEN ";q=0.5,text/*;q=0.5",
	OPEN ";q=0.5,text/plain;q=0.1,*/*", /* the star is not for what is named */
	"text/html;x=\",\\\";" OPEN "\"," OPEN,
	OPEN ";q=0.1," OPEN ";q=0.9,text/plain;q=0.5",
	(",,;," OPEN),
};

static const char *const plain[] = {
	"",
	"*/*",
	"text/plain",
	"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", /* a browser */
	"application/json, */*",
	"application/*",
	OPEN ";version=0.0.1",
	OPEN ";version=2.0.0,text/plain;q=0.1",
	OPEN ";q=0",
	OPEN ";q=0.000,*/*;q=0",
	OPEN ";q=0.4,text/plain;q=0.5",
	OPEN ";q=0.4,text/plain;version=0.0.4;q=0.5",
	OPEN ";q=0.4,text/*;q=0.5",
	OPEN ";q=0.4,*/*;q=0.5",
	"text/plain;q=0.9,*/*;q=0.1," OPEN ";q=0.899",
	OPEN ";q=1.5",
	OPEN ";q=-1",
	OPEN ";q=0.5555",
	OPEN ";q=",
	OPEN ";q=2",
	OPEN "s",
	"x" OPEN,
	"text/html;x=\"," OPEN "\"",
	"text/html;x=\"," OPEN, /* quotes that never end */
	"text/html;x=\"\\\"," OPEN "\"",
};

START_TEST(openmetrics_is_named_and_liked)
{
	ck_assert_msg(prefers(open_metrics[_i], NULL), "%s", open_metrics[_i]);
}
END_TEST

START_TEST(all_others_get_plain_text)
{
	ck_assert_msg(!prefers(plain[_i], NULL), "%s", plain[_i]);
}
END_TEST

START_TEST(several_headers_are_one)
{
	ck_assert(!prefers(NULL, NULL));
	ck_assert(prefers("text/plain;q=0.5", OPEN));
	ck_assert(prefers(OPEN, "text/plain;q=0.5"));
	ck_assert(!prefers(OPEN ";q=0.5", "text/plain"));
}
END_TEST

/* Whatever a client sends: no byte beyond the value is looked at (for the sanitizers), and all of it ends. */
START_TEST(rubbish_is_passed_over)
{
	static const char bytes[] = "\"\\;,=q01.*/ \tversionapplication/openmetrics-text";
	unsigned seed = 1;

	for (int round = 0; round < 20000; round++) {
		size_t len = (size_t)rand_r(&seed) % 40;
		char *value = malloc(len > 0 ? len : 1); /* to the byte, for the sanitizers */
		struct accept accept = ACCEPT_NOTHING;
		for (size_t i = 0; i < len; i++)
			value[i] = bytes[(size_t)rand_r(&seed) % (sizeof(bytes) - 1)];
		accept_read(&accept, value, len);
		ck_assert(accept.openmetrics >= ACCEPT_UNNAMED && accept.openmetrics <= 1000);
		ck_assert(accept.any >= ACCEPT_UNNAMED && accept.any <= 1000);
		free(value);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("accept");
	TCase *all = tcase_create("all");

	tcase_add_loop_test(all, openmetrics_is_named_and_liked, 0, sizeof(open_metrics) / sizeof(open_metrics[0]));
	tcase_add_loop_test(all, all_others_get_plain_text, 0, sizeof(plain) / sizeof(plain[0]));
	tcase_add_test(all, several_headers_are_one);
	tcase_add_test(all, rubbish_is_passed_over);
	suite_add_tcase(suite, all);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
