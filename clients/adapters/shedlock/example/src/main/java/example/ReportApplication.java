// SPDX-License-Identifier: MIT
package example;

import io.github.redlockd.RedlockdClient;
import io.github.redlockd.shedlock.RedlockdLockProvider;
import java.time.Duration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.spring.annotation.EnableSchedulerLock;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.scheduling.annotation.EnableScheduling;

@SpringBootApplication
@EnableScheduling
@EnableSchedulerLock(defaultLockAtMostFor = "4h")
public class ReportApplication {
    @Bean
    RedlockdClient redlockd(@Value("${redlockd.servers}") String[] servers) {
        return RedlockdClient.builder(servers).owner("reports " + ProcessHandle.current().pid()).build();
    }

    @Bean
    LockProvider lockProvider(RedlockdClient redlockd, @Value("${redlockd.ttl:30s}") Duration ttl) {
        return new RedlockdLockProvider(redlockd, "reports/", ttl);
    }

    public static void main(String[] arguments) { SpringApplication.run(ReportApplication.class, arguments); }
}
