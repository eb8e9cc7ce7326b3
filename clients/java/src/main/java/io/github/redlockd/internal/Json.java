package io.github.redlockd.internal;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Reads and writes JSON (RFC 8259). It is no part of the public interface and may change.
 *
 * <p>Objects are maps, arrays are lists, and neither can be changed. Whole numbers are {@code Long} where they fit, all
 * others {@code Double}. Of members with one name the last one counts. What is not one whole document in UTF-8, or
 * nests deeper than {@value #DEPTH_MAX}, is an {@link IllegalArgumentException}.
 */
public final class Json {
    private static final int DEPTH_MAX = 1000; // metadata of 1024 bytes can nest 512 deep
    private static final Pattern NUMBER = Pattern.compile("-?(?:0|[1-9][0-9]*+)((?:\\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)");
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
        if (!take('}')) {
            do {
                need('"');
                String name = string();
                need(':');
                members.put(name, value(depth + 1));
            } while (take(','));
            need('}');
        }
        return Collections.unmodifiableMap(members);
    }

    private List<Object> array(int depth) {
        List<Object> values = new ArrayList<>();
        if (!take(']')) {
            do {
                values.add(value(depth + 1));
            } while (take(','));
            need(']');
        }
        return Collections.unmodifiableList(values);
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
        if (kind != 'u') {
            int which = SHORT.indexOf(kind);
            if (which < 0) throw wrong();
            return MEANT.charAt(which);
        }
        int code = 0;
        for (int digit = 0; digit < 4; digit++) {
            int number = "0123456789abcdef".indexOf(Character.toLowerCase(next()));
            if (number < 0) throw wrong();
            code = code << 4 | number;
        }
        return (char) code;
    }

    private Object literal() {
        for (String word : List.of("null", "true", "false")) {
            if (text.startsWith(word, at)) {
                at += word.length();
                return word.equals("null") ? null : Boolean.valueOf(word);
            }
        }
        Matcher number = NUMBER.matcher(text).region(at, text.length());
        if (!number.lookingAt()) throw wrong();
        at = number.end();
        try {
            return Long.valueOf(number.group());
        } catch (NumberFormatException fraction) {
            return Double.valueOf(number.group());
        }
    }

    /** Returns a value as a document. It may have texts, numbers, booleans, null, maps and iterables of them. */
    public static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(out, value, 0);
        return out.toString();
    }

    private static void write(StringBuilder out, Object value, int depth) {
        if (value instanceof Map && depth < DEPTH_MAX) {
            char before = '{';
            for (Map.Entry<?, ?> member : ((Map<?, ?>) value).entrySet()) {
                quote(out.append(before), (String) member.getKey());
                write(out.append(':'), member.getValue(), depth + 1);
                before = ',';
            }
            out.append(before == '{' ? "{}" : "}");
        } else if (value instanceof Iterable && depth < DEPTH_MAX) {
            char before = '[';
            for (Object each : (Iterable<?>) value) {
                write(out.append(before), each, depth + 1);
                before = ',';
            }
            out.append(before == '[' ? "[]" : "]");
        } else {
            writeScalar(out, value);
        }
    }

    private static void writeScalar(StringBuilder out, Object value) {
        boolean number = value instanceof Number && NUMBER.matcher(value.toString()).matches(); // no NaN
        if (value instanceof CharSequence) {
            quote(out, (CharSequence) value);
        } else if (value == null || value instanceof Boolean || number) {
            out.append(value);
        } else {
            throw new IllegalArgumentException("JSON has no " + value.getClass().getName() + " like this, or so deep");
        }
    }

    /** Surrogates are escaped: so half of a pair is an error of the server, and no question mark. */
    private static void quote(StringBuilder out, CharSequence text) {
        out.append('"');
        text.chars().forEach(code -> {
            if (code < ' ' || Character.isSurrogate((char) code)) {
                out.append(String.format("\\u%04x", code));
            } else {
                out.append(code == '"' || code == '\\' ? "\\" : "").append((char) code);
            }
        });
        out.append('"');
    }
}
