// SPDX-License-Identifier: MIT
package example;

import io.github.redlockd.Lease;
import io.github.redlockd.RedlockdClient;
import io.github.redlockd.shedlock.RedlockdLockProvider;
import java.time.Duration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.spring.annotation.EnableSchedulerLock;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.stereotype.Component;

@SpringBootApplication
@EnableScheduling
@EnableSchedulerLock(defaultLockAtMostFor = "4h")
public class ReportApplication {
    @Bean
    RedlockdClient redlockd(@Value("${redlockd.servers}") String[] servers) {
        return RedlockdClient.builder(servers).build();
    }

    @Bean
    LockProvider locks(RedlockdClient redlockd, @Value("${redlockd.ttl:30s}") Duration ttl) {
        return new RedlockdLockProvider(redlockd, "reports/", ttl);
    }

    public static void main(String[] arguments) { SpringApplication.run(ReportApplication.class, arguments); }
}

@Component
class Job {
    private final Report report;

    Job(Report report) { this.report = report; }

    @Scheduled(cron = "${report.cron:0 0 4 * * *}")
    @SchedulerLock(name = "daily", lockAtLeastFor = "${report.at-least:10s}")
    public void run() {
        Lease lease = RedlockdLockProvider.lease();
        report.begin(lease.fence());
        while (report.hasMore()) {
            lease.check();                  // throws if the lock is lost
            report.write(lease.fence());    // the storage refuses a smaller fence
        }
    }
}
