/* Messages about mistakes in the options, each of one line. See options_loader.h. */
#include <assert.h>
#include <stdarg.h>
#include <string.h>

#include "options_loader.h"

/* Replaces control characters, so that the message stays one line. */
static void options_make_plain(char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

bool options_complain(struct options_loader *loader, const struct options_entry *entry, const char *value,
		      const char *reason)
{
	char name[OPTIONS_NAME_MAX], allowed[OPTIONS_ALLOWED_MAX];
	bool file = loader->source == OPTIONS_FROM_FILE;

	assert(entry && reason);
	options_spell(entry, loader->source, name);
	snprintf(loader->message, loader->message_size, "%s%s%s%s%.*s: %s; allowed are %s", file ? loader->path : "",
		 file ? ": " : "", name, value ? "=" : "", OPTIONS_SHOWN_MAX, value ? value : "", reason,
		 options_allowed(entry, allowed));
	options_make_plain(loader->message);
	return false;
}

void options_complain_text(struct options_loader *loader, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(loader->message, loader->message_size, format, args);
	va_end(args);
	options_make_plain(loader->message);
}

bool options_complain_unknown(struct options_loader *loader, const char *given, size_t len, const char *reason)
{
	char item[OPTIONS_SHOWN_MAX], shown[OPTIONS_SHOWN_MAX];
	bool file = loader->source == OPTIONS_FROM_FILE;

	assert(reason);
	snprintf(item, sizeof item, "%.*s", (int)(len < sizeof item ? len : sizeof item), given);
	if (strpbrk(item, "@:")) /* it may be an address, whatever is wrong with it */
		snprintf(shown, sizeof shown, "%.*s***", strchr(item, '@') ? 0 : (int)strcspn(item, ":") + 1, item);
	else
		memcpy(shown, item, sizeof shown);
	snprintf(loader->message, loader->message_size, "%s%s%s: %s; allowed are those that redlockd --help lists",
		 file ? loader->path : "", file ? ": " : "", shown, reason);
	options_make_plain(loader->message);
	return false;
}
