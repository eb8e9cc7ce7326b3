// SPDX-License-Identifier: MIT
package example;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.redlockd.Lease;
import io.github.redlockd.shedlock.RedlockdLockProvider;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.stereotype.Component;

/** Writes a line for each run into a file that all instances share. */
@Component
class Report {
    private final Path folder;

    Report(@Value("${report.folder}") Path folder) { this.folder = folder; }

    @Scheduled(fixedDelayString = "${report.pause:1m}")
    @SchedulerLock(name = "daily")
    public void write() throws IOException, InterruptedException {
        Lease lease = RedlockdLockProvider.lease();
        long run = Files.readAllLines(folder.resolve("runs")).stream().filter(line -> line.startsWith("begin")).count();
        append(lease, "begin " + run);
        while (!Files.exists(folder.resolve("go-" + run))) { // the work
            Thread.sleep(5);
            lease.check();
        }
        append(lease, "end " + run);
    }

    private void append(Lease lease, String line) throws IOException {
        lease.check();
        Files.writeString(folder.resolve("runs"), line + " " + lease.fence() + " " + ProcessHandle.current().pid() + "\n",
            UTF_8, StandardOpenOption.APPEND);
    }
}
