// SPDX-License-Identifier: MIT
package io.github.redlockd.internal;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.function.Function;
import java.util.regex.MatchResult;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Reads and writes JSON (RFC 8259).
 *
 * <p>Objects are maps, arrays are lists. Whole numbers of up to 18 digits are {@code Long}, all others {@code Double}.
 * Of members with one name the last one counts. What is not one whole document in UTF-8, or nests deeper than
 * {@value #DEPTH_MAX}, is an {@link IllegalArgumentException}.
 */
public final class Json {
    private static final int DEPTH_MAX = 1000; // metadata of 1024 bytes can nest 512 deep
    private static final Pattern LITERAL =
        Pattern.compile("null|true|false|-?(?:0|[1-9][0-9]*+)(?:\\.[0-9]++)?(?:[eE][+-]?[0-9]++)?");
    private static final Pattern ESCAPED = Pattern.compile("[\\x00-\\x1f\"\\\\\\ud800-\\udfff]");
    private static final String SHORT = "\"\\/bfnrt", MEANT = "\"\\/\b\f\n\r\t";
    private final String text;
    private int at;

    private Json(String text) { this.text = text; }

    /** Returns what a document says. */
    public static Object parse(byte[] utf8) {
        try {
            return parse(StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(utf8)).toString());
        } catch (CharacterCodingException error) {
            throw new IllegalArgumentException("not UTF-8", error);
        }
    }

    /** Returns what a document says. */
    public static Object parse(String text) {
        Json json = new Json(text);
        Object value = json.value(0);
        json.skipSpace();
        if (json.at < text.length()) throw json.wrong();
        return value;
    }

    private IllegalArgumentException wrong() { return new IllegalArgumentException("not JSON at character " + at); }

    private void skipSpace() {
        while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private char next() {
        if (at >= text.length()) throw wrong();
        return text.charAt(at++);
    }

    /** Takes this character, after space, if it comes next. */
    private boolean take(char wanted) {
        skipSpace();
        boolean found = at < text.length() && text.charAt(at) == wanted;
        at += found ? 1 : 0;
        return found;
    }

    private void need(char wanted) { if (!take(wanted)) throw wrong(); }

    private Object value(int depth) {
        if (depth > DEPTH_MAX) throw wrong();
        return take('{') ? object(depth) : take('[') ? array(depth) : take('"') ? string() : literal();
    }

    private Map<String, Object> object(int depth) {
        Map<String, Object> members = new LinkedHashMap<>();
        if (take('}')) return members;
        do {
            need('"');
            String name = string();
            need(':');
            members.put(name, value(depth + 1));
        } while (take(','));
        need('}');
        return members;
    }

    private List<Object> array(int depth) {
        List<Object> values = new ArrayList<>();
        if (take(']')) return values;
        do {
            values.add(value(depth + 1));
        } while (take(','));
        need(']');
        return values;
    }

    private String string() {
        StringBuilder made = new StringBuilder();
        for (char each = next(); each != '"'; each = next()) {
            if (each < ' ') throw wrong();
            made.append(each == '\\' ? escaped() : each);
        }
        return made.toString();
    }

    private char escaped() {
        char kind = next();
        int which = SHORT.indexOf(kind);
        if (which >= 0) return MEANT.charAt(which);
        String code = text.substring(at, Math.min(at + 4, text.length()));
        if (kind != 'u' || !code.matches("[0-9a-fA-F]{4}")) throw wrong();
        at += 4;
        return (char) Integer.parseInt(code, 16);
    }

    private Object literal() {
        Matcher found = LITERAL.matcher(text).region(at, text.length());
        if (!found.lookingAt()) throw wrong();
        at = found.end();
        String word = found.group();
        if (word.equals("null")) return null;
        if (word.equals("true") || word.equals("false")) return Boolean.valueOf(word);
        if (word.matches("-?[0-9]{1,18}")) return Long.valueOf(word);
        return Double.valueOf(word);
    }

    /** Returns a value as a document. It may have texts, numbers, booleans, null, maps and iterables of them. */
    public static String write(Object value) {
        if (value instanceof Map) {
            StringJoiner members = new StringJoiner(",", "{", "}");
            ((Map<?, ?>) value).forEach((name, each) -> members.add(quote((String) name) + ":" + write(each)));
            return members.toString();
        }
        if (value instanceof Iterable) {
            StringJoiner values = new StringJoiner(",", "[", "]");
            ((Iterable<?>) value).forEach(each -> values.add(write(each)));
            return values.toString();
        }
        if (value instanceof CharSequence) return quote((CharSequence) value);
        boolean plain = value == null || value instanceof Boolean || value instanceof Number;
        if (plain && LITERAL.matcher(String.valueOf(value)).matches()) return String.valueOf(value); // no NaN
        throw new IllegalArgumentException("JSON has no " + value.getClass().getName() + " like this");
    }

    /** Half of a pair of surrogates is escaped: so it is an error of the server, and no question mark. */
    private static String quote(CharSequence text) {
        Function<MatchResult, String> escape = each -> String.format("\\\\u%04x", (int) each.group().charAt(0));
        return '"' + ESCAPED.matcher(text).replaceAll(escape) + '"';
    }
}
