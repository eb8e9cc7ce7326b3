// SPDX-License-Identifier: MIT
package example;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.locks.LockSupport;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.stereotype.Component;

/**
 * The work of the job, as the tests want it: lines in the file "runs", which all instances share. A run lasts until there
 * is a file "go-" with its number.
 */
@Component
class Report {
    private final Path folder;
    private long run;
    private boolean more;

    Report(@Value("${report.folder}") Path folder) { this.folder = folder; }

    void begin(long fence) {
        try (var lines = Files.lines(folder.resolve("runs"))) {
            run = lines.filter(line -> line.startsWith("begin ")).count();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        more = true;
        append("begin", fence);
    }

    boolean hasMore() { return more; }

    void write(long fence) {
        LockSupport.parkNanos(5_000_000);
        more = !Files.exists(folder.resolve("go-" + run));
        if (!more) append("end", fence);
    }

    private void append(String what, long fence) {
        String line = String.join(" ", what, "" + run, "" + fence, "" + ProcessHandle.current().pid()) + "\n";
        try {
            Files.writeString(folder.resolve("runs"), line, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
